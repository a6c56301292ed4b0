"""Futures that the main thread may wait for while Ctrl-C comes at any instant.

A signal's exception can leave the standard library's futures locked: their conditions take the lock inside Python code,
where an interrupt may come between taking it and being able to release it. The thread that completes the future would
then block without end, and with it every other wait of the process.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import heapq
import math
import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import cache
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

# Deadlines of ended waits may stay in the heap until they outnumber the others by this many.
_MAX_STALE = 64


class _Condition(_thread.RLock):  # type: ignore[misc]
    """What a future needs of a condition: a lock, all that it needs when no thread waits on it.

    Enters and leaves in C, without a point in between where a signal's exception could come.
    """

    def notify_all(self) -> None:
        """Nothing to do: ``Promise`` waits by callbacks."""


# A signal that comes between Python's last look for one and the system call that waits, or to another thread, does not
# end that call: without a look now and then, Ctrl-C would be lost for as long as the wait lasts.
_LOOK_SECONDS = 0.5

_ENDED = frozenset({"FINISHED", "CANCELLED", "CANCELLED_AND_NOTIFIED"})

# Waits until a future is done or seconds have passed.
Wait = Callable[[Future[Any], "float | None"], None]


class Promise(Future[T]):
    """A ``concurrent.futures.Future`` whose ``result`` can be interrupted safely.

    Args:
        wait: How ``result`` waits, when the waiting thread can do something to bring the result about.
    """

    def __init__(self, wait: Wait | None = None) -> None:
        # As Future.__init__, whose condition costs more than everything else about a message that has arrived.
        self._condition = _Condition()  # type: ignore[assignment]
        self._state = "PENDING"
        self._result: T | None = None
        self._exception: BaseException | None = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Callable[[Future[T]], Any]] = []
        self._wait = wait

    def result(self, timeout: float | None = None) -> T:
        """Wait for the result; as ``Future.result``."""
        self._await(timeout)
        if not self.done():
            raise FutureTimeoutError
        return super().result(timeout=0)

    def done(self) -> bool:
        """Whether it has ended; as ``Future.done``, without the lock that reading one word does not need."""
        return self._state in _ENDED

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the error, if there is one; as ``Future.exception``."""
        self._await(timeout)
        if not self.done():
            raise FutureTimeoutError
        return super().exception(timeout=0)

    def end(self, value: T | None = None, error: BaseException | None = None) -> bool:
        """End it with a value or an error, unless it has ended or was cancelled; several threads may try.

        Returns:
            Whether this call has ended it.
        """
        with self._condition:
            # RUNNING is the moment of another thread between these two steps.
            if self.done() or self._state == "RUNNING" or not self.set_running_or_notify_cancel():
                return False
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(value)  # type: ignore[arg-type]
        return True

    def _await(self, timeout: float | None) -> None:
        if not self.done():
            if self._wait is None:
                wait_any([self], timeout)
            else:
                self._wait(self, timeout)


def wait_any(futures: Iterable[Future[Any]], timeout: float | None) -> None:
    """Wait until one of ``futures`` is done, or ``timeout`` seconds have passed."""
    arrived: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
    for future in futures:
        future.add_done_callback(arrived.put)
    end = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        with contextlib.suppress(queue.Empty):
            arrived.get(timeout=min(max(end - time.monotonic(), 0.0), _LOOK_SECONDS))
            return
        if time.monotonic() >= end:
            return


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


class Waiting:
    """Notes a wait while it lasts: ``with Waiting("EnvGroup:0 waits for ..."): ...``.

    Args:
        what: Who waits for whom, or a function that returns it: most waits end before a report is made.
        since: When it began, as ``time.time``; None is now.
    """

    __slots__ = ("since", "thread", "what")

    def __init__(self, what: str | Callable[[], str], since: float | None = None) -> None:
        self.what = what
        self.since = time.time() if since is None else since
        self.thread = threading.current_thread().name

    def __enter__(self) -> None:
        _waits[id(self)] = self

    def __exit__(self, *exc: object) -> None:
        _waits.pop(id(self), None)


def current_waits() -> list[dict[str, Any]]:
    """Return what each thread and task of this process waits for: ``what``, ``since`` and ``thread``, oldest first."""
    waits = sorted(list(_waits.values()), key=lambda wait: wait.since)
    described = [(wait.what if isinstance(wait.what, str) else wait.what(), wait) for wait in waits]
    return [{"what": what, "since": wait.since, "thread": wait.thread} for what, wait in described if what]


_waits: dict[int, Waiting] = {}
