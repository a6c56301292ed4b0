"""The future of a method call on all ranks of a group."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from rlinf.errors import CommTimeoutError, WorkerDiedError
from rlinf.scheduler.address import WorkerAddress
from rlinf.scheduler.comm.endpoint import Reply
from rlinf.scheduler.comm.futures import wait_any
from rlinf.scheduler.comm.serialization import decode
from rlinf.scheduler.comm.work import WATCHDOG_SECONDS
from rlinf.utils.logging import get_logger


class WorkerGroupFuncResult:
    """Results by rank, as soon as they are there; an error as soon as the first rank fails.

    Args:
        method: The method that was called.
        calls: The worker and the pending reply of each called rank, by rank.
    """

    def __init__(self, method: str, calls: Sequence[tuple[WorkerAddress, Future[Reply]]]) -> None:
        self.method = method
        self._addresses = [address for address, _ in calls]
        self._futures = [future for _, future in calls]
        self._started = time.time()
        self._results: list[Any] | None = None
        self._said = 0

    def wait(self, timeout: float | None = None) -> list[Any]:
        """Block until every rank has returned.

        Args:
            timeout: Seconds to wait; None waits without limit, with a log line every half minute.

        Returns:
            The results by rank.

        Raises:
            WorkerError: A rank's method raised; the original is its cause. The other ranks are not waited for.
            WorkerDiedError: A rank, or one that it depends on, is gone.
            CommTimeoutError: Not all ranks have returned in time; they go on and can be waited for again.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            failed = self._first_failure()
            if failed is not None:
                raise failed
            pending = [future for future in self._futures if not future.done()]
            if not pending:
                return self._collect()
            wait_any(pending, self._patience(deadline))
            self._speak(deadline, timeout)

    async def async_wait(self, timeout: float | None = None) -> list[Any]:
        """Wait on the running event loop; as ``wait`` otherwise."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            failed = self._first_failure()
            if failed is not None:
                raise failed
            pending = [future for future in self._futures if not future.done()]
            if not pending:
                return self._collect()
            # Shielded: cancelling this wait must not cancel the calls themselves.
            waits = [asyncio.shield(asyncio.wrap_future(future)) for future in pending]
            await asyncio.wait(waits, timeout=self._patience(deadline), return_when=asyncio.FIRST_COMPLETED)
            for waiting in waits:
                waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._speak(deadline, timeout)

    def done(self) -> bool:
        """Whether every rank has returned, or one has failed."""
        return all(future.done() for future in self._futures) or self._first_failure() is not None

    def pending(self) -> list[Future[Reply]]:
        """Return the replies that have not come yet."""
        return [future for future in self._futures if not future.done()]

    def raise_failure(self) -> None:
        """Raise the failure of the first rank that has failed, if one has."""
        failed = self._first_failure()
        if failed is not None:
            raise failed

    def durations(self) -> list[float]:
        """Return the seconds that each rank's method took; waits for all of them."""
        self.wait()
        return [future.result().value[1] for future in self._futures]

    def _first_failure(self) -> BaseException | None:
        for address, future in zip(self._addresses, self._futures, strict=True):
            if not future.done():
                continue
            error = future.exception()
            if error is not None:
                return _with_method(error, address, self.method)
            succeeded, outcome = future.result().value
            if not succeeded:
                return outcome.to_error()  # type: ignore[no-any-return]
        return None

    def _collect(self) -> list[Any]:
        if self._results is None:
            self._results = [decode(future.result().frames) for future in self._futures]
        return self._results

    def _patience(self, deadline: float | None) -> float:
        return WATCHDOG_SECONDS if deadline is None else max(min(WATCHDOG_SECONDS, deadline - time.monotonic()), 0.0)

    def _speak(self, deadline: float | None, timeout: float | None) -> None:
        late = [str(a) for a, future in zip(self._addresses, self._futures, strict=True) if not future.done()]
        waited = time.time() - self._started
        if late and deadline is not None and time.monotonic() >= deadline:
            raise CommTimeoutError(f"{self.method}() has not returned within {timeout:g} s on: {', '.join(late)}.")
        if late and waited >= WATCHDOG_SECONDS * (self._said + 1):
            self._said = int(waited / WATCHDOG_SECONDS)
            get_logger(__name__).info("%s() runs for %.0f s on: %s", self.method, waited, ", ".join(late))


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
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        pending = [future for result in results for future in result.pending()]
        if not pending:
            return tuple(result.wait() for result in results)
        remaining = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        if remaining == 0.0:
            late = ", ".join(f"{result.method}()" for result in results if result.pending())
            raise CommTimeoutError(f"Not returned within {timeout:g} s: {late}.")
        wait_any(pending, remaining)
        for result in results:
            result.raise_failure()


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
