"""A pending operation: waited for from a thread or an event loop, with a watchdog that says what it waits for."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import cache
from typing import Any, Generic, TypeVar

from rlinf.errors import CommTimeoutError
from rlinf.scheduler.comm.futures import Promise
from rlinf.scheduler.comm.spans import Label, traced_async_wait, traced_wait
from rlinf.scheduler.comm.waits import Waiting
from rlinf.utils.logging import get_logger

T = TypeVar("T")
S = TypeVar("S")

# A wait longer than this says so, and again after each further period.
WATCHDOG_SECONDS = 30.0


def default_timeout_seconds() -> float:
    """Return the timeout of send, recv and broadcast: ``RLINF_TIMEOUT_SECONDS``, or half an hour."""
    return float(os.environ.get("RLINF_TIMEOUT_SECONDS", "1800"))


class AsyncWork(Generic[T]):
    """The result of an operation that may still be running; it ends with exactly one value or error.

    Args:
        future: Resolves when the operation ends.
        convert: Turns the future's value into the result; runs once, on the first thread that asks.
        describe: Who waits for whom, for the watchdog and time-out messages; maybe a function that says so.
        label: What the wait is called in the trace.
    """

    def __init__(
        self,
        future: Future[Any],
        convert: Callable[[Any], T] | None = None,
        describe: str | Callable[[], str] = "",
        label: Label | None = None,
    ) -> None:
        self.label = label
        self._future = future
        self._convert = convert
        self._describe = describe
        self._lock = threading.Lock()
        self._outcome: tuple[bool, Any] | None = None
        self._started = time.time()

    @traced_wait
    def wait(self, timeout: float | None = None) -> T:
        """Block until the operation ends.

        Args:
            timeout: Seconds to wait; None waits as long as the operation itself may take.

        Returns:
            The operation's result.

        Raises:
            CommTimeoutError: It has not ended in time; it goes on and can be waited for again.
            RLinfError: The operation failed.
        """
        if self._future.done():
            return self._finish(self._future.result())
        with Waiting(self._describe, self._started):
            return self._wait(timeout)

    def _wait(self, timeout: float | None) -> T:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            slice_seconds = WATCHDOG_SECONDS if deadline is None else min(WATCHDOG_SECONDS, deadline - time.monotonic())
            try:
                return self._finish(self._future.result(timeout=max(slice_seconds, 0.0)))
            except FutureTimeoutError:
                # Since Python 3.11 this is the built-in TimeoutError, which the operation itself may have raised.
                if self._future.done():
                    if self._future.exception() is not None:
                        raise
                    continue
                self._overdue(timeout, expired=deadline is not None and time.monotonic() >= deadline)

    @traced_async_wait
    async def async_wait(self, timeout: float | None = None) -> T:
        """Wait on the running event loop until the operation ends; as ``wait`` otherwise."""
        wrapped = asyncio.ensure_future(asyncio.wrap_future(self._future))
        try:
            with Waiting(self._describe, self._started):
                return await self._async_wait(wrapped, timeout)
        except asyncio.CancelledError:
            wrapped.cancel()
            raise

    async def _async_wait(self, wrapped: asyncio.Future[Any], timeout: float | None) -> T:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = WATCHDOG_SECONDS if deadline is None else min(WATCHDOG_SECONDS, deadline - time.monotonic())
            done, _ = await asyncio.wait({wrapped}, timeout=max(left, 0.0))
            if done:
                return self._finish(wrapped.result())
            self._overdue(timeout, expired=deadline is not None and time.monotonic() >= deadline)

    def done(self) -> bool:
        """Whether the operation has ended."""
        return self._future.done()

    def then(self, fn: Callable[[T], S]) -> AsyncWork[S]:
        """Return the work of calling ``fn`` with this one's result, on a helper thread, as soon as it is there."""
        following: Future[S] = Promise()

        def run() -> None:
            try:
                following.set_result(fn(self._finish(self._future.result())))
            except BaseException as error:  # noqa: BLE001 - whatever fn raised is what the waiting side gets
                following.set_exception(error)

        self._future.add_done_callback(lambda _: _callbacks().submit(run))
        return AsyncWork(following, describe=self._describe)

    def map(self, fn: Callable[[T], S]) -> AsyncWork[S]:
        """Return the same work with its result passed through ``fn``, on the thread that asks for it."""
        return AsyncWork(self._future, lambda value: fn(self._finish(value)), self._describe, self.label)

    @property
    def describe(self) -> str:
        """Who waits for whom."""
        return self._describe if isinstance(self._describe, str) else self._describe()

    @property
    def future(self) -> Future[Any]:
        """The future underneath, before conversion."""
        return self._future

    def _finish(self, value: Any) -> T:
        with self._lock:
            if self._outcome is None:
                try:
                    self._outcome = (True, value if self._convert is None else self._convert(value))
                except Exception as error:
                    self._outcome = (False, error)
                    raise
            succeeded, result = self._outcome
        if not succeeded:
            raise result
        return result  # type: ignore[no-any-return]

    def _overdue(self, timeout: float | None, *, expired: bool) -> None:
        waited = time.time() - self._started
        since = time.strftime("%H:%M:%S", time.localtime(self._started))
        if expired:
            raise CommTimeoutError(f"{self.describe} did not end within {timeout:g} s (waiting since {since}).")
        get_logger(__name__).warning("Still waiting after %.0f s (since %s): %s", waited, since, self.describe)


def finished(value: T) -> AsyncWork[T]:
    """Return work that has already ended with ``value``."""
    future: Future[T] = Promise()
    future.set_result(value)
    return AsyncWork(future)


class _Sent(AsyncWork[None]):
    """A send that is on its way, as nearly all are when it returns."""

    def wait(self, timeout: float | None = None) -> None:
        """Return at once."""

    async def async_wait(self, timeout: float | None = None) -> None:
        """Return at once."""


def _sent() -> AsyncWork[None]:
    future: Future[None] = Promise()
    future.set_result(None)
    return _Sent(future)


SENT = _sent()


def gather(works: Sequence[AsyncWork[Any]], combine: Callable[[list[Any]], S], describe: str) -> AsyncWork[S]:
    """Return work that ends when all of ``works`` have ended, or with the first error among them."""
    result: Future[None] = Promise()
    lock = threading.Lock()
    left = [len(works)]

    def ended(future: Future[Any]) -> None:
        with lock:
            left[0] -= 1
            error = None if future.cancelled() else future.exception()
            if result.done() or (left[0] and error is None):
                return
            if error is not None:
                result.set_exception(error)
            else:
                result.set_result(None)

    for work in works:
        work.future.add_done_callback(ended)
    if not works:
        result.set_result(None)
    return AsyncWork(result, lambda _: combine([work.wait() for work in works]), describe)


@cache
def _callbacks() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="rlinf-then")
