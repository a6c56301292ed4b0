"""The one Ray actor around every worker.

The actor's only call runs on the process's main thread and does not return while the worker lives: it builds the user's
worker and serves the calls of its methods, which arrive over the endpoint. The class must have no ``async def`` method:
one would make Ray run everything on an event loop's thread.

Importing this module imports neither torch nor the user's code.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

import ray

from rlinf.registry import paused_collection
from rlinf.scheduler.address import RunSpec, WorkerIdentity
from rlinf.scheduler.calls import CallServer, RemoteFailure
from rlinf.scheduler.comm.serialization import decode
from rlinf.scheduler.environment import ProcessEnvironment
from rlinf.scheduler.probe import find_free_port, listen_ip
from rlinf.scheduler.runtime import Runtime, enter_runtime
from rlinf.utils.logging import configure_worker_logging, get_logger
from rlinf.utils.plugins import load_plugins


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
            node_ip=listen_ip(ray.util.get_node_ip_address()),
            identity=identity,
            label=str(address),
        )
        enter_runtime(self._runtime)

    def run(self, payload: list[bytes]) -> None:
        """Build the worker, report that it is ready, and serve until the group is closed.

        Args:
            payload: The frames of (class, positional arguments, keyword arguments).
        """
        try:
            self._runtime.join()
            self._meet()
            with paused_collection():
                load_plugins()
                cls, args, kwargs = decode(payload)
            gc.freeze()  # what has been imported stays
            worker = cls(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - the boundary: the launch raises it in the driver
            failure = RemoteFailure.of(error, self._identity, "__init__")
            report = failure.to_error()
            report.failure = failure  # a cause does not survive pickling; this does
            self._runtime.query("group_failed", self._identity.address, report)
            return
        calls = CallServer(worker, self._identity, self._runtime.endpoint.promise)
        self._runtime.introspection.add("calls", calls.running)
        self._runtime.endpoint.serve("call", calls.accept)
        self._runtime.endpoint.serve("shutdown", calls.stop)
        self._runtime.query("group_ready", self._runtime.worker_info())
        # Ray names all workers alike in process lists; this title distinguishes them.
        get_logger(__name__).info("Ready: process %d on node %d.", os.getpid(), self._identity.node_rank)
        calls.serve()
        worker._shut_down()

    def __repr__(self) -> str:
        return str(self._identity.address)

    def _meet(self) -> None:
        """Agree on MASTER_ADDR and MASTER_PORT: rank 0 offers, the others wait."""
        master = None
        if self._identity.address.rank == 0:
            port = find_free_port()
            while not self._runtime.query("take_port", self._runtime.node_id, port):
                port = find_free_port()
            master = (self._runtime.node_ip, port)
        host, port = self._runtime.query("group_master", self._identity.address, master)
        os.environ.update(MASTER_ADDR=host, MASTER_PORT=str(port))
