"""Time-outs of waits that nearly always end before them, at almost no cost for those that do."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from typing import Any, NamedTuple

# Deadlines of ended waits may stay in the heap until they outnumber the others by this many.
_MAX_STALE = 64


class _Entry(NamedTuple):
    when: float
    # Keeps the future's identity from being used again while the entry lives.
    future: Future[Any]
    expire: Callable[[], None]


class Deadlines:
    """Calls a function when a future has not been removed in time.

    The event loop is woken only when a deadline comes before all that it knows of: a stream of waits with the same
    time-out never wakes it. Adding, removing and expiring take the same time however many waits there are.

    Args:
        loop: Where the functions are called.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._entries: dict[int, _Entry] = {}
        # Deadline and identity of each entry, and of some that were removed.
        self._heap: list[tuple[float, int]] = []
        self._next = float("inf")
        self._timer: asyncio.TimerHandle | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, future: Future[Any], seconds: float, expire: Callable[[], None]) -> None:
        """Call ``expire`` on the loop after ``seconds``."""
        when = time.monotonic() + seconds
        with self._lock:
            self._entries[id(future)] = _Entry(when, future, expire)
            heapq.heappush(self._heap, (when, id(future)))
            if len(self._heap) > 2 * len(self._entries) + _MAX_STALE:
                self._heap = [(entry.when, key) for key, entry in list(self._entries.items())]
                heapq.heapify(self._heap)
            if when >= self._next:
                return
            self._next = when
        with contextlib.suppress(RuntimeError):  # the loop has ended, and with it the endpoint
            self.loop.call_soon_threadsafe(self._arm)

    def remove(self, future: Future[Any]) -> None:
        """The wait is over."""
        self._entries.pop(id(future), None)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(max(self._next - time.monotonic(), 0.0), self._fire)

    def _fire(self) -> None:
        now = time.monotonic()
        late = []
        with self._lock:
            while self._heap:
                when, key = self._heap[0]
                entry = self._entries.get(key)
                if entry is not None and entry.when == when:
                    if when > now:
                        break
                    self._entries.pop(key, None)
                    late.append(entry.expire)
                heapq.heappop(self._heap)
            self._next = self._heap[0][0] if self._heap else float("inf")
        self._timer = None
        if self._next < float("inf"):
            self._arm()
        for expire in late:
            expire()


@cache
def process_deadlines() -> Deadlines:
    """Return the deadlines of waits that belong to no endpoint; one thread of the process serves them all."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="rlinf-deadlines", daemon=True).start()
    return Deadlines(loop)
