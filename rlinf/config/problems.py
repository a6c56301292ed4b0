"""Collects what is wrong with a recipe, so that a user sees all of it at once, and puts types into words."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt

from rlinf.errors import ConfigError, PlacementError
from rlinf.utils.secrets import hide_for_reader, is_secret_key, mask_addresses

_WORDS: dict[object, str] = {
    int: "integer",
    float: "number",
    bool: "true or false",
    str: "string",
    type(None): "null",
    Any: "anything",
}
_BOUNDS: tuple[tuple[type, str, str], ...] = ((Gt, "gt", ">"), (Ge, "ge", ">="), (Lt, "lt", "<"), (Le, "le", "<="))


class Problems:
    """The problems found so far; each is one line that starts with the key's full dotted path."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._num_placement = 0

    def __bool__(self) -> bool:
        return bool(self.lines)

    def add(self, path: str, text: str) -> None:
        """Note that something is wrong at ``path``.

        Args:
            path: Dotted path of the key, or an empty string for the whole recipe.
            text: What was received, what is allowed and what to do.
        """
        line = f"{path or 'recipe'}: {mask_addresses(text)}"
        if line not in self.lines:
            self.lines.append(line)

    def add_placement(self, error: PlacementError) -> None:
        """Note what is wrong with the placement; the error's lines name their paths."""
        lines = [line for line in str(error).splitlines() if line not in self.lines]
        self.lines += [line if line.startswith("cluster") else f"cluster: {line}" for line in lines]
        self._num_placement += len(lines)

    def raise_if_any(self) -> None:
        """Raise one error that lists every problem, if there is any.

        Raises:
            PlacementError: There are problems, all of them with the placement.
            ConfigError: There are others.
        """
        if not self.lines:
            return
        count = f"{len(self.lines)} problem{'s' if len(self.lines) > 1 else ''}"
        kind = PlacementError if self._num_placement == len(self.lines) else ConfigError
        raise kind("\n".join([f"The recipe has {count}:", *(f"  - {line}" for line in self.lines)]))


def join(path: str, key: object) -> str:
    """Return the dotted path of ``key`` inside the section at ``path``."""
    return f"{path}.{key}" if path else str(key)


def describe_value(value: object, path: str = "") -> str:
    """Return a received value and its kind in words, for example ``'5e-6' (a string)``.

    Args:
        value: The value.
        path: Dotted path of its key; what ``is_secret_key`` is not shown.
    """
    if value is None:
        return "null"
    if is_secret_key(path):
        return f"a hidden value ({_kind(value)})"
    text = repr(hide_for_reader(value))
    text = text if len(text) <= 60 else text[:57] + "..."
    return f"{text} ({_kind(value)})"


def describe_type(annotation: Any) -> str:
    """Return the allowed values of an annotation in words, for example ``integer > 0 or null``."""
    if annotation in _WORDS:
        return _WORDS[annotation]
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        bounds = [
            f"{symbol} {getattr(mark, attribute)}"
            for mark in args[1:]
            for kind, attribute, symbol in _BOUNDS
            if isinstance(mark, kind)
        ]
        return f"{describe_type(args[0])} {' and '.join(bounds)}".strip()
    if origin is Literal:
        return "one of " + ", ".join(str(option) for option in args) if len(args) > 1 else str(args[0])
    if is_union(annotation):
        return " or ".join(dict.fromkeys(describe_type(member) for member in args))
    if origin is list:
        return f"list of ({describe_type(args[0])})"
    if origin is dict:
        return f"mapping to ({describe_type(args[1])})"
    return "mapping"


def is_union(annotation: Any) -> bool:
    """Whether ``annotation`` is ``A | B``, however it was written."""
    return get_origin(annotation) in {Union, types.UnionType}


def leaf_types(annotation: Any) -> set[Any]:
    """Return the plain types a value may have: bounds and unions taken apart, literals as ``Literal``."""
    if is_union(annotation):
        return {leaf for member in get_args(annotation) for leaf in leaf_types(member)}
    origin = get_origin(annotation)
    if origin is Annotated:
        return leaf_types(get_args(annotation)[0])
    return {Literal} if origin is Literal else {origin or annotation}


def literal_options(annotation: Any) -> list[Any]:
    """Return the values of all ``Literal`` members of ``annotation``."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    if is_union(annotation) or get_origin(annotation) is Annotated:
        return [option for member in get_args(annotation) for option in literal_options(member)]
    return []


def _kind(value: object) -> str:
    for kind, word in (
        (bool, "a boolean"),
        (str, "a string"),
        (int, "an integer"),
        (float, "a number"),
        (Mapping, "a mapping"),
        ((list, tuple), "a list"),
    ):
        if isinstance(value, kind):
            return word
    return f"a {type(value).__name__}"
