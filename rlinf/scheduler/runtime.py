"""What a process holds while it takes part in a run: its endpoint, its mailbox and its connection to the manager."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Hashable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from rlinf.errors import ClusterError, RLinfError, WorkerDiedError
from rlinf.scheduler.address import RunSpec, WorkerAddress, WorkerIdentity, WorkerInfo
from rlinf.scheduler.comm.device_transfers import DeviceTransfers
from rlinf.scheduler.comm.endpoint import Call, Endpoint, Frame
from rlinf.scheduler.comm.futures import Promise
from rlinf.scheduler.comm.mailbox import Frames, Mailbox, MessageHeader, Source
from rlinf.scheduler.comm.outbox import Outbox
from rlinf.scheduler.comm.spans import peer_started
from rlinf.scheduler.comm.work import AsyncWork
from rlinf.scheduler.probe import listen_ip
from rlinf.scheduler.process_watch import own_process
from rlinf.scheduler.run_status import Introspection
from rlinf.scheduler.tracing import serve_trace
from rlinf.telemetry import trace
from rlinf.utils.logging import get_logger

# A description of what a process waits for stays on a line.
_MAX_ABOUT = 80

# Of a process that was declared dead and hears of it.
_EXIT_GIVEN_UP = 1


class Runtime:
    """One per process and run; ``current_runtime`` returns it.

    Args:
        spec: The run.
        node_id: Ray's id of this node.
        node_ip: Address of this node.
        identity: The worker that this process is, or None in the driver and in service actors.
        label: Name of the process, for messages.
    """

    def __init__(
        self,
        spec: RunSpec,
        *,
        node_id: str,
        node_ip: str,
        identity: WorkerIdentity | None = None,
        label: str = "driver",
    ) -> None:
        self.spec = spec
        self.node_id = node_id
        self.node_ip = node_ip
        self.identity = identity
        self.label = label
        self.endpoint = Endpoint(
            namespace=spec.namespace,
            node_id=node_id,
            keys=spec.keys,
            listen_ip=listen_ip(node_ip) if spec.spans_nodes else None,
            # Ctrl-C comes to the driver, not to workers.
            read_while_waiting=identity is not None,
        )
        self.devices = DeviceTransfers(self.endpoint, Path(self.endpoint.info.ipc).parent)
        self.mailbox = Mailbox(label, self.endpoint.loop, self.endpoint.promise)
        address = identity.address if identity else WorkerAddress(label, 0)
        self.outbox = Outbox(address, self.endpoint, self.lookup_member)
        if spec.trace_events:
            trace.enable(label, spec.trace_events)
            serve_trace(self.endpoint)
        self.introspection = Introspection(self.endpoint, label)
        self.introspection.add("dropped", lambda: self.mailbox.num_dropped)
        self.endpoint.serve("data", self._on_data)
        self.endpoint.serve("died", lambda call: self._on_death(*call.args[:-1]))
        self.endpoint.serve("closed", lambda call: self._on_closed(*call.args))
        self.endpoint.serve("started", lambda call: self._on_started(*call.args))
        self.endpoint.serve("run_failed", lambda call: self.fail_pending(*call.args))

    def join(self) -> None:
        """Report this process to the manager, and learn which workers have died before."""
        address = self.identity.address if self.identity else None
        for death in self.query("join", self.label, address, own_process()):
            self._on_death(*death[:-1])  # whether its group was closed matters to channels only

    def query(self, operation: str, *args: Any, timeout: float | None = None) -> Any:
        """Send a request to the manager and wait for its reply."""
        about = ", ".join(str(arg) for arg in args)
        what = f"{self.label} waits for the manager's answer to {operation}({about[:_MAX_ABOUT]})"
        return AsyncWork[Any](self.request(operation, *args), describe=what).wait(timeout).value

    def request(self, operation: str, *args: Any) -> Future[Any]:
        """Send a request to the manager; the future ends with a ``Reply``."""
        if self.spec.manager is None:
            raise ClusterError("The run has no manager.")
        return self.endpoint.request(self.spec.manager, operation, args)

    def worker_info(self) -> WorkerInfo:
        """Return what other processes need to know of the worker that this process is.

        Raises:
            ClusterError: The process is no worker.
        """
        if self.identity is None:
            raise ClusterError(f"Process {os.getpid()} ({self.label}) is no worker of a group; launch one first.")
        return WorkerInfo(
            address=self.identity.address,
            rank=self.identity.address.rank,
            node_rank=self.identity.node_rank,
            node_ip=self.node_ip,
            pid=os.getpid(),
            hardware_ranks=self.identity.hardware_ranks,
            accelerators=self.identity.accelerators,
            endpoint=self.endpoint.info,
        )

    def lookup_group(self, name: str, wait: bool) -> Future[list[WorkerInfo]]:
        """Look up a group's members by rank; wait until it is launched, or fail at once if it is not."""
        return self._value_of("group_lookup", name, wait)

    def lookup_member(self, name: str, rank: int, wait: bool) -> Future[WorkerInfo]:
        """Look up one member of a group: what a worker of a large run needs, whose groups are long lists."""
        return self._value_of("group_member", name, rank, wait)

    def lookup_size(self, name: str) -> Future[int]:
        """Look up how many ranks a group has, waiting until it is launched."""
        return self._value_of("group_size", name)

    def _value_of(self, operation: str, *args: Any) -> Future[Any]:
        result: Promise[Any] = Promise()

        def answered(reply: Future[Any]) -> None:
            error = reply.exception()
            result.end(None if error is not None else reply.result().value, error)

        self.request(operation, *args).add_done_callback(answered)
        return result

    def send(self, group: str, rank: int, tag: Hashable, frames: Sequence[Frame]) -> Future[None] | None:
        """Send frames to a worker; None when they are on their way."""
        return self.outbox.send(group, rank, tag, frames)

    def receive(self, source: Source, tag: Hashable, timeout_seconds: float | None) -> Future[Frames]:
        """Return a future for the next message of a worker with this tag."""
        if self.mailbox.death_of(source) is None:
            return self.mailbox.receive(source, tag, timeout_seconds)
        # The news that the group was launched again may still be on its way: the manager knows.
        result: Promise[Frames] = self.endpoint.promise()

        def looked_up(found: Future[WorkerInfo]) -> None:
            if found.exception() is None:
                self.mailbox.source_started(source, found.result().address.incarnation)
            self.mailbox.receive(source, tag, timeout_seconds, result)

        self.lookup_member(*source, False).add_done_callback(looked_up)
        return result

    def fail_pending(self, error: RLinfError) -> None:
        """Fail every wait of this process, now and later, since deaths are no longer reported."""
        self.endpoint.fail_pending(error)
        self.mailbox.fail_pending(error)

    def close(self) -> None:
        """Leave the run."""
        self.devices.close()
        self.endpoint.close()

    def _on_data(self, call: Call) -> None:
        self.mailbox.deliver(MessageHeader(*call.args), call.frames)

    def _on_death(self, address: WorkerAddress | None, uid: str | None, error: WorkerDiedError) -> None:
        end_if_declared_dead(self.endpoint, uid, error)
        if uid is not None:
            self.endpoint.peer_died(uid, error)
            self.devices.peer_died(uid)
        if address is None:
            return
        self.mailbox.source_died((address.group_name, address.rank), address.incarnation, error)

    def _on_closed(self, name: str, incarnation: int, uids: dict[int, str | None]) -> None:
        """Ranks of a group have been ended in good order."""
        for rank, uid in uids.items():
            address = WorkerAddress(name, rank, incarnation)
            self._on_death(address, uid, closed_error(address))

    def _on_started(self, name: str, incarnation: int, world_size: int) -> None:
        for rank in range(world_size):
            address = WorkerAddress(name, rank, incarnation)
            peer_started(address)
            self.mailbox.source_started((address.group_name, address.rank), address.incarnation)


def closed_error(address: WorkerAddress) -> WorkerDiedError:
    """Return what waits for a worker end with once its group was closed."""
    text = f"Worker {address} is gone: its group was closed"
    return WorkerDiedError(text, group=address.group_name, rank=address.rank)


def end_if_declared_dead(endpoint: Endpoint, uid: str | None, error: WorkerDiedError) -> None:
    """End this process if it is the one that was given up: others go on without it, and may need its device.

    Args:
        endpoint: This process's.
        uid: Of the process that was given up.
        error: Why.
    """
    if uid == endpoint.info.uid:
        get_logger(__name__).error("%s The run goes on without this process, which lives and ends now.", error)
        logging.shutdown()
        os._exit(_EXIT_GIVEN_UP)


_lock = threading.Lock()
_stack: list[Runtime] = []


def enter_runtime(runtime: Runtime) -> None:
    """Make ``runtime`` the one that workers, groups and channels of this process use."""
    with _lock:
        _stack.append(runtime)


def leave_runtime(runtime: Runtime) -> None:
    """Stop using ``runtime``; the one entered before it, if any, is current again."""
    with _lock:
        if runtime in _stack:
            _stack.remove(runtime)
    runtime.close()


def current_runtime() -> Runtime:
    """Return this process's runtime.

    Raises:
        ClusterError: The process takes part in no run.
    """
    with _lock:
        if not _stack:
            raise ClusterError(
                f"Process {os.getpid()} takes part in no run. Create a Cluster first; in a worker, this works "
                "after launch."
            )
        return _stack[-1]


def find_runtime() -> Runtime | None:
    """Return this process's runtime, or None outside of a run."""
    with _lock:
        return _stack[-1] if _stack else None
