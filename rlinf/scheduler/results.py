"""The future of a method call on all ranks of a group."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import queue
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from functools import partial
from typing import Any, Generic, TypeVar

from rlinf.errors import CommTimeoutError, WorkerDiedError
from rlinf.scheduler.address import WorkerAddress
from rlinf.scheduler.calls import RemoteFailure
from rlinf.scheduler.comm.endpoint import Reply
from rlinf.scheduler.comm.futures import Promise, Waiting, wait_any
from rlinf.scheduler.comm.serialization import decode
from rlinf.utils.logging import get_logger

# A call that runs for so long says what its late ranks do, and again whenever that time has doubled: training calls
# take minutes in good order.
GROUP_WATCHDOG_SECONDS = 60.0
# Late ranks whose reports are requested; the others are like them.
_MAX_LISTED = 8

T = TypeVar("T")

# Seconds of a wait between two looks for a signal.
_LOOK_SECONDS = 0.5
# Returns what workers do at the moment, in a line for each.
Look = Callable[[Sequence[WorkerAddress]], Mapping[WorkerAddress, str]]


class _Progress:
    """Counts the replies to one call, so that a wait for them is woken once, however many there are.

    It does not hold the replies: their callbacks hold it, and the memory of a result must not wait for a collection of
    cycles.

    Args:
        count: Number of replies.

    Attributes:
        settled: Ends with the last reply or the first failure.
        failed: Who has failed, in order of time, with the error of the request or what the method raised.
    """

    def __init__(self, count: int) -> None:
        self.settled: Promise[None] = Promise()
        self.failed: deque[tuple[WorkerAddress, BaseException | RemoteFailure]] = deque()
        self._count = count
        self._numbers = itertools.count(1)
        if not count:
            self.settled.set_result(None)

    def note(self, address: WorkerAddress, future: Future[Reply]) -> None:
        """Take note of a reply. Threads may call this at once: each of its steps is atomic."""
        error = future.exception()
        succeeded, outcome = (False, error) if error is not None else future.result().value
        if not succeeded:
            self.failed.append((address, outcome))
        if next(self._numbers) == self._count or not succeeded:
            with contextlib.suppress(InvalidStateError):  # it had failed before
                self.settled.set_result(None)


class WorkerGroupFuncResult:
    """Results by rank, as soon as they are there; an error as soon as the first rank fails.

    Args:
        method: The method that was called.
        calls: The worker and the pending reply of each called rank, by rank.
        look: Queries what workers do, for the watchdog.
    """

    def __init__(
        self, method: str, calls: Sequence[tuple[WorkerAddress, Future[Reply]]], look: Look | None = None
    ) -> None:
        self.method = method
        self._look = look
        self._addresses = [address for address, _ in calls]
        self._futures = [future for _, future in calls]
        self._started = time.time()
        self._results: list[Any] | None = None
        self._speak_after = GROUP_WATCHDOG_SECONDS
        self._progress = _Progress(len(calls))
        for address, future in calls:
            future.add_done_callback(partial(self._progress.note, address))

    def wait(self, timeout: float | None = None) -> list[Any]:
        """Block until every rank has returned.

        Args:
            timeout: Seconds to wait; None waits without limit, and says after a minute what the late ranks do.

        Returns:
            The results by rank.

        Raises:
            WorkerError: A rank's method raised; the original is its cause. The other ranks are not waited for.
            WorkerDiedError: A rank, or one that it depends on, is gone.
            CommTimeoutError: Not all ranks have returned in time; they go on and can be waited for again.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self.done():
            with Waiting(self.describe, self._started):
                wait_any([self.settled], self.patience(deadline))
            self._expire(deadline, timeout)
            self.watch()
        return self._collect()

    async def async_wait(self, timeout: float | None = None) -> list[Any]:
        """Wait on the running event loop; as ``wait`` otherwise."""
        deadline = None if timeout is None else time.monotonic() + timeout
        settled = asyncio.wrap_future(self.settled)
        while not self.done():
            with Waiting(self.describe, self._started):
                # Unlike awaiting it, this leaves it alone when it is cancelled itself.
                await asyncio.wait([settled], timeout=self.patience(deadline))
            self._expire(deadline, timeout)
            if self._is_overdue():
                await asyncio.to_thread(self.watch)
        return self._collect()

    def done(self) -> bool:
        """Whether every rank has returned, or one has failed."""
        return self._progress.settled.done()

    @property
    def settled(self) -> Future[None]:
        """A future that ends once ``done``."""
        return self._progress.settled

    def raise_failure(self) -> None:
        """Raise the failure of the rank that has failed first, if one has."""
        if not self._progress.failed:
            return
        address, failure = self._progress.failed[0]
        if isinstance(failure, BaseException):
            raise _with_method(failure, address, self.method)
        raise failure.to_error()

    def describe(self) -> str:
        """Return what is waited for, in words."""
        return f"waits for {self.method}() on {_list(self._late())}"

    def patience(self, deadline: float | None) -> float:
        """Return the seconds until there is something to say, or until the deadline."""
        left = self._started + self._speak_after - time.time()
        return max(left if deadline is None else min(left, deadline - time.monotonic()), 0.0)

    def watch(self) -> None:
        """Say what the late ranks do, if it is time to."""
        if not self._is_overdue():
            return
        waited = time.time() - self._started
        while self._speak_after <= waited:
            self._speak_after *= 2
        late = self._late()
        doing = self._look(late[:_MAX_LISTED]) if self._look is not None else {}
        lines = [f"\n  {address}: {text}" for address, text in doing.items()]
        get_logger(__name__).info("%s() runs for %.0f s on: %s%s", self.method, waited, _list(late), "".join(lines))

    def _collect(self) -> list[Any]:
        self.raise_failure()
        if self._results is None:
            self._results = [decode(future.result().frames) for future in self._futures]
        return self._results

    def _late(self) -> list[WorkerAddress]:
        return [a for a, future in zip(self._addresses, self._futures, strict=True) if not future.done()]

    def _is_overdue(self) -> bool:
        return not self.done() and time.time() - self._started >= self._speak_after

    def _expire(self, deadline: float | None, timeout: float | None) -> None:
        if deadline is not None and time.monotonic() >= deadline and not self.done():
            raise CommTimeoutError(f"{self.method}() has not returned within {timeout:g} s on: {_list(self._late())}.")


def wait_all(*results: WorkerGroupFuncResult, timeout: float | None = None) -> tuple[list[Any], ...]:
    """Wait for calls on several groups that depend on one another: the first failure of any of them ends the wait.

    Args:
        *results: Futures of group calls.
        timeout: Seconds to wait for all of them; None waits without limit.

    Returns:
        The results by rank, of each call.

    Raises:
        WorkerError: A method raised, whichever group it belongs to; so none waits for what will never be sent.
        WorkerDiedError: A rank is gone.
        CommTimeoutError: Not all have returned in time.
    """
    started = time.time()
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        for result in results:
            result.raise_failure()
        late = [result for result in results if not result.done()]
        if not late:
            return tuple(result.wait() for result in results)
        if deadline is not None and time.monotonic() >= deadline:
            methods = ", ".join(f"{result.method}()" for result in late)
            raise CommTimeoutError(f"Not returned within {timeout:g} s: {methods}.")
        with Waiting(partial(_describe, late), started):
            wait_any([result.settled for result in late], min(result.patience(deadline) for result in late))
        for result in late:
            result.watch()


class CompletionQueue(Generic[T]):
    """Calls in flight, each with an item that is handed out once the call has returned or failed, in order of time.

    Unlike waiting for the first of many calls, a wait takes the same time however many are in flight.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._pending: dict[int, tuple[WorkerGroupFuncResult, T]] = {}
        self._done: queue.SimpleQueue[int] = queue.SimpleQueue()

    def add(self, result: WorkerGroupFuncResult, item: T) -> None:
        """Hand out ``item`` when the call has returned or failed."""
        number, done = next(self._numbers), self._done
        self._pending[number] = (result, item)
        # The callback outlives the call; it must not hold the result.
        result.settled.add_done_callback(lambda _: done.put(number))

    def pop(self) -> list[T]:
        """Return the items of calls that have returned or failed since, without waiting."""
        items = []
        with contextlib.suppress(queue.Empty):
            while True:
                items.append(self._pending.pop(self._done.get_nowait())[1])
        return items

    def wait(self) -> None:
        """Wait until ``pop`` returns something; with no call in flight this returns at once.

        Now and then the watchdog reports what late ranks do; see ``WorkerGroupFuncResult.wait``.
        """
        if not self._pending:
            return
        with Waiting(self._describe, time.time()):
            while self._done.empty():
                # Short enough for Ctrl-C, and for the watchdog.
                with contextlib.suppress(queue.Empty):
                    self._done.put(self._done.get(timeout=_LOOK_SECONDS))
                    return
                for result, _ in list(self._pending.values()):
                    result.watch()

    def _describe(self) -> str:
        return _describe([result for result, _ in list(self._pending.values())])


def _describe(results: Sequence[WorkerGroupFuncResult]) -> str:
    return "; ".join(result.describe() for result in results[:_MAX_LISTED])


def _with_method(error: BaseException, address: WorkerAddress, method: str) -> BaseException:
    if isinstance(error, WorkerDiedError) and not error.method:
        named = WorkerDiedError(
            f"{error} (while {address} ran {method}())",
            group=error.group,
            rank=error.rank,
            node=error.node,
            method=method,
        )
        named.__cause__ = error
        return named
    return error


def _list(addresses: Sequence[WorkerAddress]) -> str:
    shown = ", ".join(str(address) for address in addresses[:_MAX_LISTED])
    return shown if len(addresses) <= _MAX_LISTED else f"{shown} and {len(addresses) - _MAX_LISTED} more"
