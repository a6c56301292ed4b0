"""The view of a registry that looks like an enumeration."""

from __future__ import annotations

import pytest

from rlinf.errors import RegistryError
from rlinf.registry import Registry
from rlinf.utils.enumeration import RegistryEnum


@pytest.fixture
def kinds() -> RegistryEnum[object]:
    registry: Registry[object] = Registry("colour")
    registry.register("dark-red", object())
    registry.register("blue", object())
    return RegistryEnum("Colour", registry)


def test_members_are_their_names_by_attribute_call_and_iteration(kinds: RegistryEnum[object]) -> None:
    assert kinds.DARK_RED == kinds("Dark-Red") == "dark-red"
    assert (kinds.DARK_RED.name, kinds.DARK_RED.value) == ("DARK_RED", "dark-red")
    assert sorted(kinds) == ["blue", "dark-red"]
    assert len(kinds) == 2
    assert "blue" in kinds
    assert "green" not in kinds


def test_unknown_names_list_those_there_are(kinds: RegistryEnum[object]) -> None:
    with pytest.raises(RegistryError, match="Did you mean 'blue'"):
        kinds("blu")
    with pytest.raises(AttributeError, match="Colour has no member 'GREEN'; it has: .*DARK_RED"):
        _ = kinds.GREEN
    assert not hasattr(kinds, "_private")
    assert repr(kinds).startswith("<Colour: ")
