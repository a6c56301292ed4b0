"""Calls by keyword, for published code: the fields of (inputs, cfg) instead of the two dataclasses."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from rlinf.errors import AlgorithmError

T = TypeVar("T")


def from_fields(cls: type[T], values: Mapping[str, Any]) -> T:
    """Build a dataclass from those of ``values`` that are its fields.

    Raises:
        AlgorithmError: A field without a default is missing.
    """
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    needed = [f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING]
    _check(cls.__name__, needed, values)
    return cls(**{field.name: values[field.name] for field in fields if field.name in values})


@functools.cache
def takes_keywords(function: Callable[..., Any], *, positional: int = 2) -> bool:
    """Return whether a function has the former shape: its parameters name fields.

    Args:
        function: Of a plug-in, or built in.
        positional: Positional parameters of the present shape: 2 are (inputs, cfg).
    """
    parameters = inspect.signature(function).parameters.values()
    return sum(p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD} for p in parameters) != positional


def call_with_fields(function: Callable[..., T], *sources: Any, **others: Any) -> T:
    """Call a function of the former shape with those fields of dataclasses, and others, that it names.

    Args:
        function: Takes keyword arguments.
        *sources: Dataclass instances; all fields are offered.
        **others: Offered too.

    Raises:
        AlgorithmError: An argument without a default is not offered.
    """
    offered = {f.name: getattr(source, f.name) for source in sources for f in dataclasses.fields(source)} | others
    parameters = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return function(**offered)
    needed = [p.name for p in parameters if p.default is p.empty]
    _check(getattr(function, "__qualname__", str(function)), needed, offered)
    return function(**{p.name: offered[p.name] for p in parameters if p.name in offered})


def _check(what: str, needed: list[str], given: Mapping[str, Any]) -> None:
    missing = [f"'{name}'" for name in needed if name not in given]
    if missing:
        raise AlgorithmError(f"{what} requires {', '.join(missing)}; received {', '.join(sorted(given)) or 'nothing'}.")
