"""A pending operation: waited for from a thread or an event loop, with a watchdog that says what it waits for."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rlinf.errors import CommTimeoutError
from rlinf.scheduler.comm.futures import Promise, Waiting
from rlinf.scheduler.comm.helpers import run_on_helper
from rlinf.scheduler.comm.spans import Label, traced_async_wait, traced_wait
from rlinf.utils.logging import get_logger

T = TypeVar("T")
S = TypeVar("S")

# A wait longer than this says so, and again after each further period.
WATCHDOG_SECONDS = 30.0


def default_timeout_seconds() -> float:
    """Return the timeout of send, recv and broadcast: ``RLINF_TIMEOUT_SECONDS``, or half an hour."""
    return float(os.environ.get("RLINF_TIMEOUT_SECONDS", "1800"))


@dataclass(slots=True)
class Claim:
    """What an operation keeps for the one who waits for it: an item, a message, a place in a queue.

    Attributes:
        give_up: Ends the operation. A result that was not taken goes back to where it came from.
        take: Notes that the result has been taken.
        loop: Where ``give_up`` runs for work that is dropped without a wait; None lets such work go on.
    """

    give_up: Callable[[], None]
    take: Callable[[], None] | None = None
    loop: asyncio.AbstractEventLoop | None = None


# Claims of dropped work, which must wait for a moment at which no lock is held.
_dropped: deque[Claim] = deque()


def give_up_dropped() -> None:
    """Give up the work that was dropped before now; for operations that could get what it has brought."""
    while _dropped:
        with contextlib.suppress(IndexError):  # another thread was faster
            _dropped.popleft().give_up()


class AsyncWork(Generic[T]):
    """The result of an operation that may still be running; it ends with exactly one value or error.

    A wait that is given up (a cancelled task, ``asyncio.wait_for``, Ctrl-C) gives up the operation: what a get or a
    receive has brought is there for the next one, in its old place, and a put does not happen. The same goes for a get
    or a receive whose work is dropped. A wait that ends with ``CommTimeoutError`` may be repeated.

    Args:
        future: Resolves when the operation ends.
        convert: Turns the future's value into the result; runs once, on the first thread that asks.
        describe: Who waits for whom, for the watchdog and time-out messages; maybe a function that says so.
        label: What the wait is called in the trace.
        claim: What the operation keeps until its result is taken or given up.
    """

    def __init__(
        self,
        future: Future[Any],
        convert: Callable[[Any], T] | None = None,
        describe: str | Callable[[], str] = "",
        label: Label | None = None,
        claim: Claim | None = None,
    ) -> None:
        self._outcome: tuple[bool, Any] | None = None
        self._claim = claim
        self.label = label
        self._future = future
        self._convert = convert
        self._describe = describe
        self._lock = threading.Lock()
        self._started = time.time()

    def __del__(self) -> None:
        # Finalizers run anywhere, also inside of locks: the claim waits for the loop, or for the next operation.
        claim = self._claim
        if claim is not None and claim.loop is not None and self._outcome is None:
            _dropped.append(claim)
            with contextlib.suppress(RuntimeError):  # the loop has ended
                claim.loop.call_soon_threadsafe(give_up_dropped)

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
        try:
            if not self._future.done():
                with Waiting(self._describe, self._started):
                    self._await(timeout)
            return self._finish(self._future.result())
        except BaseException as error:
            if not isinstance(error, Exception):
                self.give_up()
            raise

    def _await(self, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._future.done():
            slice_seconds = WATCHDOG_SECONDS if deadline is None else min(WATCHDOG_SECONDS, deadline - time.monotonic())
            try:
                self._future.exception(timeout=max(slice_seconds, 0.0))
            except FutureTimeoutError:
                if not self._future.done():
                    self._overdue(timeout, expired=deadline is not None and time.monotonic() >= deadline)

    @traced_async_wait
    async def async_wait(self, timeout: float | None = None) -> T:
        """Wait on the running event loop until the operation ends; as ``wait`` otherwise."""
        try:
            if not self._future.done():
                with Waiting(self._describe, self._started):
                    await self._async_await(timeout)
            return self._finish(self._future.result())
        except BaseException as error:
            if not isinstance(error, Exception):
                self.give_up()
            raise

    async def _async_await(self, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        wrapped = asyncio.wrap_future(self._future)
        # The error is raised from the future underneath.
        wrapped.add_done_callback(lambda done: done.cancelled() or done.exception())
        while not wrapped.done():
            left = WATCHDOG_SECONDS if deadline is None else min(WATCHDOG_SECONDS, deadline - time.monotonic())
            await asyncio.wait({wrapped}, timeout=max(left, 0.0))
            if not wrapped.done():
                self._overdue(timeout, expired=deadline is not None and time.monotonic() >= deadline)

    def give_up(self) -> None:
        """End the operation without its result: a result that was not taken goes back."""
        with self._lock:
            if self._outcome is not None:
                return
            self._outcome = (False, CancelledError(f"The wait was given up: {self.describe}"))
        self._future.cancel()
        if self._claim is not None:
            self._claim.give_up()

    def done(self) -> bool:
        """Whether the operation has ended."""
        return self._future.done()

    def then(self, fn: Callable[[T], S]) -> AsyncWork[S]:
        """Return the work of calling ``fn`` with this one's result as soon as it is there.

        ``fn`` runs on a helper thread, next to other continuations, and may wait. It is called also when the returned
        work is dropped; a script that ends does not wait for it.
        """
        following: Promise[S] = Promise()
        held = [self]  # until fn runs: the future keeps its callbacks, and would keep this work with its result

        def run() -> None:
            if not following.set_running_or_notify_cancel():
                return
            work = held.pop()
            try:
                following.set_result(fn(work._finish(work._future.result())))
            except BaseException as error:  # noqa: BLE001 - the waiting side raises what fn raised
                following.set_exception(error)

        def give_up() -> None:
            if following.cancelled():
                for work in held:
                    work.give_up()

        self._future.add_done_callback(lambda _: run_on_helper(run))
        return AsyncWork(following, describe=self._describe, claim=Claim(give_up))

    def map(self, fn: Callable[[T], S]) -> AsyncWork[S]:
        """Return the same work with its result passed through ``fn``, on the thread that asks for it."""
        return AsyncWork(
            self._future, lambda value: fn(self._finish(value)), self._describe, self.label, Claim(self.give_up)
        )

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
                finally:
                    if self._claim is not None and self._claim.take is not None and self._outcome is not None:
                        self._claim.take()
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


def gather(
    works: Sequence[AsyncWork[Any]], combine: Callable[[list[Any]], S], describe: str | Callable[[], str]
) -> AsyncWork[S]:
    """Return work that ends when all of ``works`` have ended, or with the first error among them."""
    result: Promise[None] = Promise()
    lock = threading.Lock()
    left = [len(works)]

    def ended(future: Future[Any]) -> None:
        with lock:
            left[0] -= 1
            is_last = not left[0]
        error = None if future.cancelled() else future.exception()
        if error is not None or is_last:
            result.end(error=error)

    def give_up() -> None:
        for work in works:
            work.give_up()

    for work in works:
        work.future.add_done_callback(ended)
    if not works:
        result.end()
    return AsyncWork(result, lambda _: combine([work.wait() for work in works]), describe, claim=Claim(give_up))
