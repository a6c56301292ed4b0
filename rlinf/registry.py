"""One generic registry: names are lower-cased on both sides, duplicates raise, unknown names get a suggestion."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import gc
import importlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from rlinf.errors import RegistryError

T = TypeVar("T")
F = TypeVar("F")


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


@contextlib.contextmanager
def paused_collection() -> Iterator[None]:
    """Pause garbage collection while packages are imported.

    Modules live as long as their process; going through those of torch again and again takes a sixth of its import.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def import_target(path: str) -> Any:
    """Import what ``"package.module:attribute"`` names."""
    module, _, attribute = path.partition(":")
    with paused_collection():
        return getattr(importlib.import_module(module), attribute)


@dataclasses.dataclass(frozen=True, slots=True)
class Registration(Generic[T]):
    """What a registry knows about one name.

    Attributes:
        target: The object, or its ``"package.module:attribute"`` until it is first needed; None for a name that stands
            for its config alone.
        config: Dataclass of the name's recipe keys; None for those of the registry's base.
    """

    target: T | str | None = None
    config: type[Any] | None = None


class Registry(Generic[T]):
    """Maps lower-cased names to objects, each with the dataclass of its recipe keys.

    A built-in and a plug-in register alike, at once or as a decorator::

        losses.register("cispo", target="rlinf.algorithms.losses.cispo:cispo_loss", config=CISPOLossConfig)

        @losses.register("mine", config=MyLossConfig)
        def my_loss(inputs, cfg): ...

    Iteration, ``in`` and ``names`` show the names that have a target; ``configs`` those that recipes may write.

    Args:
        kind: What the registry holds, in the singular, for messages (for example ``"environment"``).
        config: Dataclass of names that are registered without one; None for a registry whose names have no keys.
    """

    def __init__(self, kind: str, *, config: type[Any] | None = None) -> None:
        self.kind = kind
        self.configs = ConfigTable(self, config)
        self._entries: dict[str, Registration[T]] = {}

    def register(self, name: str, target: T | str | None = None, config: type[Any] | None = None) -> Callable[[F], F]:
        """Register a target, a config or both under ``name``; without a target, return a decorator that adds it.

        Args:
            name: The name users write in recipes; stored in lower case.
            target: The object, or ``"package.module:attribute"``, which is imported when it is first looked up.
            config: Dataclass of its recipe keys; None for those that all of the registry have.

        Returns:
            A decorator that registers its argument as the target and returns it unchanged.

        Raises:
            RegistryError: The name is taken by another object or another config.
        """

        def add(entry: F) -> F:
            self._add(name, entry, config)
            return entry

        if target is not None or config is not None:
            self._add(name, target, config)
        return add

    def get(self, name: str) -> T:
        """Return the target registered under ``name``, importing it if need be.

        Raises:
            RegistryError: There is none; the message lists the names and the closest one.
        """
        key = str(name).lower()
        entry = self._entries.get(key, Registration())
        if entry.target is None:
            raise self._unknown(name, self.names())
        if isinstance(entry.target, str):
            entry = self._entries[key] = dataclasses.replace(entry, target=import_target(entry.target))
        return entry.target  # type: ignore[return-value]  # no longer a path

    def names(self) -> list[str]:
        """Return the names that have a target, sorted."""
        return sorted(name for name, entry in self._entries.items() if entry.target is not None)

    def __contains__(self, name: object) -> bool:
        return self._entries.get(str(name).lower(), Registration()).target is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def _add(self, name: str, target: Any, config: type[Any] | None) -> None:
        key = name.lower()
        known = self._entries.get(key, Registration())
        if _differ(known.target, target) or None not in {known.config, config} and known.config is not config:
            raise RegistryError(f"{self.kind} '{key}' is already registered; choose another name.")
        chosen = known.target if target is None or isinstance(target, str) else target
        self._entries[key] = Registration(chosen or target, config or known.config)

    def _unknown(self, name: str, names: list[str]) -> RegistryError:
        hint = did_you_mean(str(name).lower(), names)
        return RegistryError(f"Unknown {self.kind} '{name}'.{hint} Registered: {', '.join(names) or 'none'}.")


class ConfigTable:
    """The dataclasses of a registry's names: ``losses.configs.get("cispo")`` is ``CISPOLossConfig``.

    Args:
        registry: The registry.
        default: Dataclass of names that have none of their own.
    """

    def __init__(self, registry: Registry[Any], default: type[Any] | None) -> None:
        self.kind = registry.kind
        self._registry = registry
        self.default = default

    def get(self, name: str) -> type[Any]:
        """Return the dataclass of the keys of ``name``.

        Raises:
            RegistryError: There is none; the message lists the names and the closest one.
        """
        entry = self._registry._entries.get(str(name).lower())
        config = None if entry is None else entry.config or self.default
        if config is None:
            raise self._registry._unknown(name, self.names())
        return config

    def names(self) -> list[str]:
        """Return the names that have a dataclass, sorted."""
        entries = self._registry._entries.items()
        return sorted(name for name, entry in entries if entry.config or self.default)

    def register(self, name: str, config: type[Any]) -> None:
        """Register the dataclass alone: an older way of ``Registry.register(name, target, config=config)``."""
        self._registry.register(name, config=config)

    def __contains__(self, name: object) -> bool:
        entry = self._registry._entries.get(str(name).lower())
        return entry is not None and (entry.config or self.default) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())


def _differ(known: Any, target: Any) -> bool:
    if known is None or target is None or known is target:
        return False
    return _import_path(known) != _import_path(target) if str in {type(known), type(target)} else True


def _import_path(target: Any) -> str:
    return (
        target
        if isinstance(target, str)
        else f"{getattr(target, '__module__', '')}:{getattr(target, '__qualname__', '')}"
    )
