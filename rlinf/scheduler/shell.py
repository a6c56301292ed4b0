"""The one Ray actor around every worker.

The actor's only call runs on the process's main thread and does not return while the worker lives: it builds the user's
worker and then runs its sync methods one at a time, in the order they were called. ``async def`` methods run on an event loop
of their own. Method calls arrive over the endpoint, so a busy main thread delays neither messages nor health.

Importing this module imports neither torch nor the user's code.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import queue
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from rlinf.errors import WorkerDiedError, WorkerError
from rlinf.scheduler.address import RunSpec, WorkerAddress, WorkerIdentity, WorkerInfo
from rlinf.scheduler.comm.endpoint import Call
from rlinf.scheduler.comm.serialization import decode, encode
from rlinf.scheduler.environment import ProcessEnvironment
from rlinf.scheduler.network import find_free_port
from rlinf.scheduler.runtime import Runtime, enter_runtime
from rlinf.utils.logging import configure_worker_logging, get_logger
from rlinf.utils.plugins import load_plugins


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
        except Exception:  # noqa: BLE001 - pickling runs the exception's own code; the text travels in any case
            original = None
        text = "".join(traceback.format_exception(error))
        return cls(identity.address, identity.node_rank, method, type(error).__name__, str(error), text, original)

    def to_error(self) -> WorkerError:
        """Return the error to raise in the caller, with the original as its cause."""
        cause: BaseException | None = None
        if self.original is not None:
            try:
                cause = pickle.loads(self.original)
            except Exception:  # noqa: BLE001 - its class may not exist here; the text travels in any case
                cause = None
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


class WorkerShell:
    """One worker's process.

    Args:
        spec: The run.
        identity: Which worker this is.
        environment: Applied before anything heavy is imported.
    """

    def __init__(self, spec: RunSpec, identity: WorkerIdentity, environment: ProcessEnvironment) -> None:
        environment.apply()
        self._identity = identity
        address = identity.address
        folder = Path(spec.log_dir) / "worker_logs" if spec.log_dir else None
        log_file = folder / f"{address.group_name.replace('/', '_')}_{address.rank}.log" if folder else None
        configure_worker_logging(str(address), log_file)
        context = ray.get_runtime_context()
        self._runtime = Runtime(
            spec,
            node_id=context.get_node_id(),
            node_ip=ray.util.get_node_ip_address(),
            identity=identity,
            label=str(address),
        )
        enter_runtime(self._runtime)
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: Any = None

    def run(self, payload: list[bytes]) -> None:
        """Build the worker, say that it is ready, and serve until told to stop.

        Args:
            payload: The frames of (class, positional arguments, keyword arguments).
        """
        try:
            self._runtime.join()
            self._meet()
            load_plugins()
            cls, args, kwargs = decode(payload)
            self._worker = cls(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - the boundary: the launch raises it in the driver
            failure = RemoteFailure.of(error, self._identity, "__init__")
            self._runtime.ask("group_failed", self._identity.address, failure.to_error())
            return
        self._runtime.endpoint.serve("call", self._on_call)
        self._runtime.endpoint.serve("shutdown", lambda _: self._tasks.put(None))
        self._runtime.ask("group_ready", self._describe())
        while (task := self._tasks.get()) is not None:
            task()
        self._worker.on_shutdown()

    def __repr__(self) -> str:
        return str(self._identity.address)

    def _meet(self) -> None:
        """Agree on MASTER_ADDR and MASTER_PORT: rank 0 offers, the others wait."""
        master = None
        if self._identity.address.rank == 0:
            port = find_free_port()
            while not self._runtime.ask("take_port", self._runtime.node_id, port):
                port = find_free_port()
            master = (self._runtime.node_ip, port)
        host, port = self._runtime.ask("group_master", self._identity.address, master)
        os.environ.update(MASTER_ADDR=host, MASTER_PORT=str(port))

    def _describe(self) -> WorkerInfo:
        return WorkerInfo(
            address=self._identity.address,
            rank=self._identity.address.rank,
            node_rank=self._identity.node_rank,
            node_ip=self._runtime.node_ip,
            pid=os.getpid(),
            hardware_ranks=self._identity.hardware_ranks,
            accelerators=self._identity.accelerators,
            endpoint=self._runtime.endpoint.info,
        )

    def _on_call(self, call: Call) -> None:
        (method,) = call.args
        function = getattr(self._worker, method)
        if inspect.iscoroutinefunction(function):
            asyncio.run_coroutine_threadsafe(self._run_async(call, method, function), self._event_loop())
        else:
            self._tasks.put(lambda: self._run_sync(call, method, function))

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="rlinf-async", daemon=True).start()
        return self._loop

    def _run_sync(self, call: Call, method: str, function: Callable[..., Any]) -> None:
        started = time.perf_counter()
        try:
            args, kwargs = decode(call.frames)
            frames = encode(function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - the boundary: whatever it was is raised in the caller
            self._fail(call, method, error)
            return
        call.reply((True, time.perf_counter() - started), frames)

    async def _run_async(self, call: Call, method: str, function: Callable[..., Any]) -> None:
        started = time.perf_counter()
        try:
            args, kwargs = decode(call.frames)
            frames = encode(await function(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - the boundary: whatever it was is raised in the caller
            self._fail(call, method, error)
            return
        call.reply((True, time.perf_counter() - started), frames)

    def _fail(self, call: Call, method: str, error: BaseException) -> None:
        get_logger(__name__).debug("%s() failed.", method, exc_info=error)
        call.reply((False, RemoteFailure.of(error, self._identity, method)))
