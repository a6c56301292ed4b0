"""Time-outs of waits that nearly always end before them, at almost no cost for those that do."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class Deadlines:
    """Calls a function when a future has not been removed in time.

    The event loop is woken only when a deadline comes before all that it knows of: a stream of waits with the same
    time-out never wakes it.

    Args:
        loop: Where the functions are called.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._entries: dict[Future[Any], tuple[float, Callable[[], None]]] = {}
        self._next = float("inf")
        self._timer: asyncio.TimerHandle | None = None
        self._lock = threading.Lock()

    def add(self, future: Future[Any], seconds: float, expire: Callable[[], None]) -> None:
        """Call ``expire`` on the loop after ``seconds``."""
        when = time.monotonic() + seconds
        with self._lock:
            self._entries[future] = (when, expire)
            if when >= self._next:
                return
            self._next = when
        with contextlib.suppress(RuntimeError):  # the loop has ended, and with it the endpoint
            self._loop.call_soon_threadsafe(self._arm)

    def remove(self, future: Future[Any]) -> None:
        """The wait is over."""
        self._entries.pop(future, None)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(max(self._next - time.monotonic(), 0.0), self._fire)

    def _fire(self) -> None:
        now = time.monotonic()
        with self._lock:
            late = [(future, expire) for future, (when, expire) in list(self._entries.items()) if when <= now]
            for future, _ in late:
                self._entries.pop(future, None)
            self._next = min((when for when, _ in list(self._entries.values())), default=float("inf"))
        self._timer = None
        if self._next < float("inf"):
            self._arm()
        for _, expire in late:
            expire()
