"""SIGTERM as a way to end a run in good order, and blocks that no interrupt tears apart."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class Terminated(KeyboardInterrupt):
    """SIGTERM was received; handlers of Ctrl-C handle it too."""


class _Held:
    """Whether interrupts are held back at the moment, and which one is due; touched by the main thread alone."""

    depth = 0
    due: type[KeyboardInterrupt] | None = None


@contextlib.contextmanager
def hear_interrupts() -> Iterator[None]:
    """Let the main thread hear SIGTERM as it hears Ctrl-C; other threads can set no handlers, and leave it as it is.

    It is what schedulers, containers and ``kill`` send before they end a process by force.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, _interrupt)}
    # What a shell starts in the background ignores Ctrl-C, and goes on doing so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def hold_interrupts() -> Iterator[None]:
    """Let no interrupt end the block half-way: what ``hear_interrupts`` hears meanwhile is raised at its end.

    For a few statements that belong together; nothing in the block may wait.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if not _Held.depth:
        _Held.due = None
    _Held.depth += 1
    try:
        yield
    finally:
        _Held.depth -= 1
        if not _Held.depth and _Held.due is not None:
            raise _Held.due


def _interrupt(number: int, _: object) -> None:
    interrupt = Terminated if number == signal.SIGTERM else KeyboardInterrupt
    if not _Held.depth:
        raise interrupt
    _Held.due = interrupt
