"""Futures that the main thread may wait for while Ctrl-C comes at any instant.

A signal's exception can leave the standard library's futures locked: their conditions take the lock inside Python code,
where an interrupt may come between taking it and being able to release it. The thread that completes the future would
then block for ever, and with it every other wait of the process.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class _Condition(threading.Condition):
    """Enters and leaves in C, without a point in between where a signal's exception could come."""

    _lock: Any

    @property
    def __enter__(self) -> Callable[[], bool]:
        return self._lock.__enter__  # type: ignore[no-any-return]

    @property
    def __exit__(self) -> Callable[..., None]:
        return self._lock.__exit__  # type: ignore[no-any-return]


# Waits until a future is done or seconds have passed.
Wait = Callable[[Future[Any], "float | None"], None]


class Promise(Future[T]):
    """A ``concurrent.futures.Future`` whose ``result`` can be interrupted safely.

    Args:
        wait: How ``result`` waits, when the waiting thread can do something to bring the result about.
    """

    def __init__(self, wait: Wait | None = None) -> None:
        super().__init__()
        self._condition = _Condition()
        self._wait = wait

    def result(self, timeout: float | None = None) -> T:
        """Wait for the result; as ``Future.result``."""
        if not self.done():
            if self._wait is None:
                wait_any([self], timeout)
            else:
                self._wait(self, timeout)
        return super().result(timeout=0)


def wait_any(futures: Iterable[Future[Any]], timeout: float | None) -> None:
    """Wait until one of ``futures`` is done, or ``timeout`` seconds have passed."""
    arrived: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
    for future in futures:
        future.add_done_callback(arrived.put)
    with contextlib.suppress(queue.Empty):
        arrived.get(timeout=None if timeout is None else max(timeout, 0.0))
