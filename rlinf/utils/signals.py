"""SIGTERM as a way to end a run in good order."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class Terminated(KeyboardInterrupt):
    """SIGTERM has come: whatever handles Ctrl-C handles it too."""


@contextlib.contextmanager
def hear_sigterm() -> Iterator[None]:
    """Let the main thread hear SIGTERM as it hears Ctrl-C; other threads can set no handlers, and leave it as it is.

    It is what schedulers, containers and ``kill`` send before they end a process by force.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
