"""Calls of a worker's methods, where they run.

Sync methods run one at a time, in the order they were called, on the thread that serves (the process's main thread);
``async def`` methods run on an event loop of their own, so that neither kind delays the other.
"""

from __future__ import annotations

import asyncio
import inspect
import pickle
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rlinf.errors import WorkerDiedError, WorkerError, error_text
from rlinf.scheduler.address import WorkerAddress, WorkerIdentity
from rlinf.scheduler.comm.endpoint import Call
from rlinf.scheduler.comm.futures import Promise
from rlinf.scheduler.comm.serialization import Buffer, decode, encode
from rlinf.telemetry import trace
from rlinf.utils.event_loop import new_event_loop
from rlinf.utils.logging import get_logger


@dataclass(frozen=True)
class RemoteFailure:
    """An exception of a worker's method on its way to the caller.

    Attributes:
        address: The worker.
        node_rank: Cluster rank of its node.
        method: The method.
        kind: Name of the exception's class.
        message: Its text.
        traceback: Its traceback.
        original: The exception, pickled, or None when it cannot be.
    """

    address: WorkerAddress
    node_rank: int
    method: str
    kind: str
    message: str
    traceback: str
    original: bytes | None

    @classmethod
    def of(cls, error: BaseException, identity: WorkerIdentity, method: str) -> RemoteFailure:
        """Describe ``error``, raised in ``method`` of this process's worker."""
        try:
            original = pickle.dumps(error)
            pickle.loads(original)
        except BaseException:  # noqa: BLE001 - pickling runs the exception's own code; the text travels in any case
            original = None
        text = "".join(traceback.format_exception(error))
        return cls(
            identity.address, identity.node_rank, method, type(error).__name__, error_text(error), text, original
        )

    def cause(self) -> BaseException | None:
        """Return the original exception, or None when it cannot be rebuilt here."""
        if self.original is None:
            return None
        try:
            return pickle.loads(self.original)  # type: ignore[no-any-return]
        except Exception:  # noqa: BLE001 - its class may not exist here; the text travels in any case
            return None

    def to_error(self) -> WorkerError:
        """Return the error to raise in the caller, with the original as its cause."""
        cause = self.cause()
        message = (
            f"{self.address} (node {self.node_rank}) failed in {self.method}(): {self.kind}: {self.message}\n"
            f"--- traceback of {self.address} ---\n{self.traceback}"
        )
        about = {"method": self.method, "remote_traceback": self.traceback}
        if isinstance(cause, WorkerDiedError):  # the first cause is what the caller wants to know, and to catch
            error: WorkerError = WorkerDiedError(message, group=cause.group, rank=cause.rank, node=cause.node, **about)
        else:
            error = WorkerError(
                message, group=self.address.group_name, rank=self.address.rank, node=self.node_rank, **about
            )
        error.__cause__ = cause
        return error


class _Tasks:
    """A queue whose reader is woken through a promise.

    Args:
        promise: Makes the promise.
    """

    def __init__(self, promise: Callable[[], Promise[Any]]) -> None:
        self._promise = promise
        self._waiting: Promise[Any] | None = None
        self._queue: deque[Callable[[], None] | None] = deque()
        self._lock = threading.Lock()

    def put(self, task: Callable[[], None] | None) -> None:
        """Add a task, or None for the end."""
        with self._lock:
            waiting, self._waiting = self._waiting, None
            if waiting is None:
                self._queue.append(task)
        if waiting is not None:
            waiting.set_result(task)

    def get(self) -> Callable[[], None] | None:
        """Wait for the next task; one thread at a time."""
        with self._lock:
            if self._queue:
                return self._queue.popleft()
            waiting = self._waiting = self._promise()
        return waiting.result()  # type: ignore[no-any-return]


class CallServer:
    """Runs the methods of one worker.

    Args:
        worker: The user's worker.
        identity: Which worker it is, for errors.
        promise: Makes the future of a message, so that the serving thread may read it while it waits.
    """

    def __init__(self, worker: Any, identity: WorkerIdentity, promise: Callable[[], Promise[Any]]) -> None:
        self._worker = worker
        self._identity = identity
        self._tasks = _Tasks(promise)
        self._loop: asyncio.AbstractEventLoop | None = None
        # The calls that run at the moment, by the identity of their ``Call``.
        self._running: dict[int, tuple[str, float]] = {}

    def serve(self) -> None:
        """Run sync methods on this thread until ``stop``."""
        while (task := self._tasks.get()) is not None:
            task()

    def stop(self, _: Call) -> None:
        """Stop serving after the calls that came before."""
        self._tasks.put(None)

    def running(self) -> list[dict[str, Any]]:
        """Return ``method`` and ``since`` of each call that runs, oldest first."""
        return [{"method": method, "since": since} for method, since in list(self._running.values())]

    def accept(self, call: Call) -> None:
        """Take a call from the endpoint's thread."""
        (method,) = call.args
        function = getattr(self._worker, method)
        if inspect.iscoroutinefunction(function):
            asyncio.run_coroutine_threadsafe(self._run_async(call, method, function), self._event_loop())
        else:
            self._tasks.put(lambda: self._run_sync(call, method, function))

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="rlinf-async", daemon=True).start()
        return self._loop

    def _run_sync(self, call: Call, method: str, function: Callable[..., Any]) -> None:
        with self._replying(call, method) as reply:
            with trace.span(method, "call"):
                args, kwargs = decode(call.frames)
                frames = encode(function(*args, **kwargs))
            reply(frames)

    async def _run_async(self, call: Call, method: str, function: Callable[..., Any]) -> None:
        with self._replying(call, method) as reply:
            with trace.span(method, "call"):
                args, kwargs = decode(call.frames)
                frames = encode(await function(*args, **kwargs))
            reply(frames)

    @contextmanager
    def _replying(self, call: Call, method: str) -> Iterator[Callable[[list[Buffer]], None]]:
        """Note a call while it runs; its caller gets the result, or the error of the call or of sending the result."""
        started = time.perf_counter()
        self._running[id(call)] = (method, time.time())

        def reply(frames: list[Buffer]) -> None:
            self._running.pop(id(call), None)
            call.reply((True, time.perf_counter() - started), frames)

        try:
            yield reply
        except BaseException as error:  # noqa: BLE001 - the boundary: the caller raises it
            self._running.pop(id(call), None)
            self._fail(call, method, error)

    def _fail(self, call: Call, method: str, error: BaseException) -> None:
        get_logger(__name__).debug("%s() failed.", method, exc_info=error)
        try:
            call.reply((False, RemoteFailure.of(error, self._identity, method)))
        except Exception:  # noqa: BLE001 - the boundary: the worker serves its other callers
            get_logger(__name__).exception("The error of %s() cannot be sent to its caller.", method)
