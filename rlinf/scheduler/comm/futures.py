"""Futures that the main thread may wait for while Ctrl-C comes at any instant.

A signal's exception can leave the standard library's futures locked: their conditions take the lock inside Python code,
where an interrupt may come between taking it and being able to release it. The thread that completes the future would
then block for ever, and with it every other wait of the process.
"""

from __future__ import annotations

import _thread
import contextlib
import math
import queue
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

T = TypeVar("T")


class _Condition(_thread.RLock):  # type: ignore[misc]
    """What a future needs of a condition: a lock, which is all that is left of it when nobody waits on it.

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
