"""An enumeration that is a view of a registry: registering a name extends it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from rlinf.registry import Registry

T = TypeVar("T")


class RegistryMember(str):
    """One member: equal to its registered name, with ``name`` (upper case) and ``value`` like an ``Enum`` member."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name as an attribute of the enumeration, for example ``MLP_POLICY``."""
        return _attribute(self)

    @property
    def value(self) -> str:
        """The registered name, for example ``mlp_policy``."""
        return str(self)


class RegistryEnum(Generic[T]):
    """The names of a registry, used like an ``Enum`` class: ``Kind.NAME``, ``Kind("name")``, iteration, ``in``.

    Args:
        title: How the enumeration is called, for its representation.
        registry: The registry it shows.
    """

    def __init__(self, title: str, registry: Registry[T]) -> None:
        self._title = title
        self._registry = registry

    def __call__(self, name: str) -> RegistryMember:
        """Return the member called ``name``.

        Raises:
            RegistryError: No such name is registered; the message lists those that are.
        """
        if name not in self._registry:
            self._registry.get(name)  # raises, without importing what is registered
        return RegistryMember(name.lower())

    def __getattr__(self, attribute: str) -> RegistryMember:
        if not attribute.startswith("_"):
            for name in self._registry.names():
                if _attribute(name) == attribute:
                    return RegistryMember(name)
        options = ", ".join(_attribute(name) for name in self._registry.names())
        raise AttributeError(f"{self._title} has no member '{attribute}'; it has: {options}.")

    def __iter__(self) -> Iterator[RegistryMember]:
        return (RegistryMember(name) for name in self._registry.names())

    def __len__(self) -> int:
        return len(self._registry.names())

    def __contains__(self, name: Any) -> bool:
        return name in self._registry

    def __repr__(self) -> str:
        return f"<{self._title}: {', '.join(self._registry.names())}>"


def _attribute(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name.upper())
