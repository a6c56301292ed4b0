"""Calls of published code: keyword arguments under their published names, and arguments that have no effect here."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from rlinf.utils.logging import get_logger

P = ParamSpec("P")
R = TypeVar("R")


def published_keywords(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let callers of a function use published names of its keyword arguments.

    Args:
        **names: The function's own name of each argument, by its published name.

    Raises:
        TypeError: When called: an argument is given under both names.

    Example:
        >>> @published_keywords(object="obj")
        ... def send(obj):
        ...     return obj
        >>> send(object=3)
        3
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for published, name in names.items():
                if published in kwargs:
                    if name in kwargs:
                        raise TypeError(f"{function.__qualname__}() got {name}= and {published}=, which is the same.")
                    kwargs[name] = kwargs.pop(published)
            return function(*args, **kwargs)

        call.__dict__["published_keywords"] = names  # what readers of the signature do not see
        return call

    return decorate


@functools.cache
def note_unused(argument: str, reason: str) -> None:
    """Log once per process that an argument of published code has no effect.

    Args:
        argument: Its name, with that of its function or class.
        reason: Why; a sentence without its full stop.
    """
    get_logger(__name__).warning("%s has no effect: %s.", argument, reason)
