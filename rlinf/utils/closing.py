"""Closes several resources: an error in closing one of them keeps no other open."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def close_all(closers: Iterable[Callable[[], object]]) -> None:
    """Call each, in order, also after one has raised.

    Args:
        closers: What closes a resource, each without arguments.

    Raises:
        Exception: What the last of those that failed raised; the errors before are its context.
    """
    remaining = iter(closers)
    for close in remaining:
        try:
            close()
        finally:
            close_all(remaining)
