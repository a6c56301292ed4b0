"""One generic registry: names are lower-cased on both sides, duplicates raise, unknown names get a suggestion."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from rlinf.errors import RegistryError

T = TypeVar("T")


def closest(name: str, options: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the option closest to ``name``, or None when none is close.

    Args:
        name: What was written.
        options: What can be.
        cutoff: Least similarity, of 1 for equal strings.
    """
    close = difflib.get_close_matches(name, list(options), n=1, cutoff=cutoff)
    return close[0] if close else None


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the option closest to ``name``, or an empty string when none is close."""
    close = closest(name, options)
    return "" if close is None else f" Did you mean '{close}'?"


class Registry(Generic[T]):
    """A mapping from lower-cased names to objects, some of them imported only when first asked for.

    Args:
        kind: What the registry holds, in the singular, for messages (for example ``"environment"``).
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}
        self._lazy: dict[str, str] = {}

    def register(self, name: str, value: T | None = None) -> Callable[[T], T]:
        """Register ``value`` under ``name``; without a value, return a decorator that does.

        Args:
            name: The name users write in recipes; stored in lower case.
            value: The object; None to use the call as a decorator.

        Returns:
            A decorator that registers its argument and returns it unchanged.

        Raises:
            RegistryError: The name is taken by another object.
        """

        def add(entry: T) -> T:
            key = name.lower()
            if key in self._lazy:
                if _import_path(entry) != self._lazy[key]:
                    raise RegistryError(f"{self.kind} '{key}' is already registered; choose another name.")
            elif self._entries.get(key, entry) is not entry:
                raise RegistryError(f"{self.kind} '{key}' is already registered; choose another name.")
            self._entries[key] = entry
            return entry

        if value is not None:
            add(value)
        return add

    def register_lazy(self, name: str, import_path: str) -> None:
        """Register ``"package.module:attribute"`` under ``name``, to be imported when first asked for.

        Raises:
            RegistryError: The name is taken.
        """
        key = name.lower()
        if key in self:
            raise RegistryError(f"{self.kind} '{key}' is already registered; choose another name.")
        self._lazy[key] = import_path

    def get(self, name: str) -> T:
        """Return what is registered under ``name``.

        Raises:
            RegistryError: Nothing is; the message lists the names and the closest one.
        """
        key = str(name).lower()
        if key not in self._entries and key in self._lazy:
            module, _, attribute = self._lazy[key].partition(":")
            self._entries[key] = getattr(importlib.import_module(module), attribute)
        if key not in self._entries:
            names = self.names()
            raise RegistryError(
                f"Unknown {self.kind} '{name}'.{did_you_mean(key, names)} Registered: {', '.join(names) or 'none'}."
            )
        return self._entries[key]

    def names(self) -> list[str]:
        """Return all registered names, sorted."""
        return sorted({*self._entries, *self._lazy})

    def __contains__(self, name: object) -> bool:
        key = str(name).lower()
        return key in self._entries or key in self._lazy

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())


def _import_path(entry: object) -> str:
    return f"{getattr(entry, '__module__', '')}:{getattr(entry, '__qualname__', '')}"
