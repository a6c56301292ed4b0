"""The run's one manager: registry, rendezvous, leases and health, in a small actor that loads neither torch nor numpy.

All its state is touched on its endpoint's thread only. It holds one never-finishing call on every worker and channel
host; when such a call fails, it notifies every process at once. The workers' processes are watched as well: those of
its node by the manager itself, those of another node by the channel host there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from typing import Any, NamedTuple

import ray

from rlinf.errors import ClusterError, RLinfError, WorkerDiedError
from rlinf.scheduler.address import EndpointInfo, RunSpec, WorkerAddress, WorkerInfo
from rlinf.scheduler.comm.endpoint import Call
from rlinf.scheduler.comm.heartbeat import SILENCE_SECONDS, Heartbeat
from rlinf.scheduler.group_registry import GroupRecord, GroupRegistry, Leases, LookupCallback
from rlinf.scheduler.process_watch import ProcessId, ProcessWatch
from rlinf.scheduler.run_status import RunState, assemble, request_reports
from rlinf.scheduler.runtime import Runtime, closed_error
from rlinf.utils.logging import configure_worker_logging, get_logger

# (address or None, uid or None, error, closed): what every process receives about a death.
Death = tuple[WorkerAddress | None, str | None, WorkerDiedError, bool]


class _Channel(NamedTuple):
    """Where a channel is, and which process created it."""

    host: EndpointInfo
    channel_id: str
    maxsize: int
    uid: str
    label: str | None

    @property
    def place(self) -> tuple[EndpointInfo, str, int]:
        """What its users need to know."""
        return self.host, self.channel_id, self.maxsize


class Manager:
    """The manager's state and the operations it serves.

    Args:
        runtime: The manager process's own runtime.
        start_host: Called with the id of a node that needs a channel host; ``host_started`` or ``host_gone`` follows.
    """

    def __init__(self, runtime: Runtime, start_host: Any) -> None:
        self._endpoint = runtime.endpoint
        runtime.endpoint.say_farewell()
        self._node_id = runtime.node_id
        self._start_host = start_host
        self._watch = ProcessWatch(runtime.endpoint.loop)
        # Workers that channel hosts watch: their node, name and process.
        self._watched: dict[str, tuple[str, WorkerAddress, ProcessId]] = {}
        self._heartbeat = Heartbeat(
            runtime.endpoint.loop, node_id=runtime.node_id, keys=runtime.spec.keys, on_silence=self._node_gone
        )
        self._processes: dict[str, EndpointInfo] = {}
        self._labels: dict[str, str] = {}
        # Process of each worker: known before it is ready, and after its group was launched again.
        self._joined: dict[tuple[str, int, int], str] = {}
        self._groups = GroupRegistry()
        self._leases = Leases()
        self._deaths: dict[tuple[str, int] | str, Death] = {}
        self._hosts: dict[str, EndpointInfo] = {}
        self._starting_hosts: set[str] = set()
        self._host_waiters: dict[str, list[Call]] = defaultdict(list)
        self._channels: dict[str, _Channel] = {}
        self._channel_waiters: dict[str, list[Call]] = defaultdict(list)
        groups = ("begin", "master", "ready", "failed", "wait", "lookup", "member", "size", "alive", "end")
        channels = ("host", "add", "find", "remove")
        names = [f"group_{name}" for name in groups] + [f"channel_{name}" for name in channels]
        for name in ("join", "ended", "lock", "unlock", "take_port", *names):
            self._endpoint.serve(name, getattr(self, f"_{name}"))

    # Processes

    def _join(self, call: Call) -> None:
        self._processes[call.sender.uid] = call.sender
        self._labels[call.sender.uid], address, process = call.args
        if address is not None:
            self._joined[_launched(address)] = call.sender.uid
        if address is not None and process is not None:
            self._watch_worker(call.sender, address, process)
        self._heartbeat.watch(call.sender)
        call.reply(list(self._deaths.values()))

    def _watch_worker(self, worker: EndpointInfo, address: WorkerAddress, process: ProcessId) -> None:
        if worker.node_id == self._node_id:
            self._watch.add(process, lambda: self.worker_gone(address, process.end))
            return
        self._watched[worker.uid] = (worker.node_id, address, process)
        if worker.node_id in self._hosts:
            self._endpoint.notify(self._hosts[worker.node_id], "watch", (address, process))
        else:
            self._need_host(worker.node_id)

    def _ended(self, call: Call) -> None:
        """A channel host reports that a worker's process has ended."""
        self.worker_gone(*call.args)

    def _tell(self, operation: str, args: tuple[Any, ...]) -> None:
        for uid, process in self._processes.items():
            if self._endpoint.is_dead(uid) is None:
                with contextlib.suppress(ClusterError):  # one that cannot be reached must not keep it from the others
                    self._endpoint.notify(process, operation, args)

    def describe(self) -> RunState:
        """Return what the manager knows, for ``rlinf status``."""
        return RunState(dict(self._processes), dict(self._labels), self._groups.describe(), self._leases.describe())

    # Groups

    def _group_begin(self, call: Call) -> None:
        name, world_size = call.args
        call.reply(self._groups.begin(name, world_size).incarnation)

    def _group_master(self, call: Call) -> None:
        """Rank 0 sets the address of the process group; the others look it up."""
        address, master = call.args
        group = self._live_group(address)
        if master is not None:
            group.master = master
            for callback in group.master_waiters:
                callback(master)
            group.master_waiters.clear()
            call.reply(master)
        elif group.master is not None:
            call.reply(group.master)
        else:
            group.master_waiters.append(call.reply)

    def _group_ready(self, call: Call) -> None:
        (info,) = call.args
        group = self._groups.ready(info)
        call.reply()
        if group is not None:
            for rank in range(group.world_size):
                self._deaths.pop((group.name, rank), None)
            # No process can have given up on ranks that are the first of their name.
            if group.incarnation > 1:
                self._tell("started", (group.name, group.incarnation, group.world_size))

    def _group_failed(self, call: Call) -> None:
        address, error = call.args
        group = self._groups.find(address)
        if group is not None:
            self._groups.fail(group, error)
        call.reply()

    def _group_wait(self, call: Call) -> None:
        (address,) = call.args
        self._groups.wait_launched(self._live_group(address), _reply_to(call))

    def _group_lookup(self, call: Call) -> None:
        name, wait = call.args
        self._groups.lookup(name, wait, _reply_to(call))

    def _group_member(self, call: Call) -> None:
        """One rank only: a list of all of them for each of them would grow with the square of the run."""
        name, rank, wait = call.args

        def callback(members: list[WorkerInfo] | None, error: RLinfError | None) -> None:
            if members is None:
                call.fail(error or ClusterError(f"Group '{name}' has no members."))
            elif 0 <= rank < len(members):
                call.reply(members[rank])
            else:
                call.fail(RLinfError(f"Group '{name}' has ranks 0-{len(members) - 1}; there is no rank {rank}."))

        self._groups.lookup(name, wait, callback)

    def _group_size(self, call: Call) -> None:
        (name,) = call.args
        self._groups.lookup(name, True, lambda members, _: call.reply(len(members or ())))

    def _group_alive(self, call: Call) -> None:
        (address,) = call.args
        call.reply(self._groups.is_alive(address))

    def _group_end(self, call: Call) -> None:
        """The group is about to be closed in good order: what follows is no failure."""
        (address,) = call.args
        group = self._groups.find(address)
        if group is not None and not group.closed:
            group.closed = True
            uids: dict[int, str | None] = {}
            for rank in range(group.world_size):
                address = WorkerAddress(group.name, rank, group.incarnation)
                error = closed_error(address)
                if self._groups.gone(address, error) is not None:
                    uids[rank] = self._joined.get(_launched(address))
                    self._deaths[group.name, rank] = (address, uids[rank], error, True)
                    self._forget(uids[rank], error)
            # One notice for all ranks: one for each would grow with the square of the run.
            self._tell("closed", (group.name, group.incarnation, uids))
        call.reply()

    def worker_gone(self, address: WorkerAddress, reason: str | None) -> None:
        """Notify every process that a worker's process has ended.

        Args:
            address: The worker.
            reason: How; None where it has left the run by itself.
        """
        group = self._groups.find(address)
        member = group.members.get(address.rank) if group else None
        error = WorkerDiedError(
            f"Worker {address} is gone: {reason or 'it left the run'}",
            group=address.group_name,
            rank=address.rank,
            node=member.node_rank if member else None,
        )
        group = self._groups.gone(address, error)
        uid = self._joined.pop(_launched(address), None)
        if group is None:
            # It is known to be gone, but may have joined after that.
            self._forget(uid, error)
            return
        death: Death = (address, uid, error, group.closed)
        self._deaths[address.group_name, address.rank] = death
        if uid is not None and reason is None:
            self._processes.pop(uid, None)  # it knows
        self._remove_process(uid, error, death)

    def _node_gone(self, node_id: str) -> None:
        """Every process of a node that has vanished is gone with it."""
        workers = self._groups.on_node(node_id)
        where = f"node {workers[0].node_rank} ({workers[0].node_ip})" if workers else f"node {node_id[:8]}"
        reason = f"{where} has not answered for {SILENCE_SECONDS:g} s; the machine or its network is down."
        get_logger(__name__).error("Lost a node: %s", reason)
        for member in workers:
            self.worker_gone(member.address, reason)
        if node_id in self._hosts or node_id in self._starting_hosts:
            self.host_gone(node_id, reason)

    def _remove_process(self, uid: str | None, error: WorkerDiedError, death: Death) -> None:
        # The process itself is notified, too: if it was only unreachable or stopped, it ends when it hears of it.
        self._tell("died", death)
        self._forget(uid, error)

    def _forget(self, uid: str | None, error: WorkerDiedError) -> None:
        if uid is not None:
            self._processes.pop(uid, None)
            self._labels.pop(uid, None)
            self._watched.pop(uid, None)
            self._heartbeat.forget(uid)
            self._leases.release_all(uid)
            self._endpoint.peer_died(uid, error)

    def _live_group(self, address: WorkerAddress) -> GroupRecord:
        group = self._groups.find(address)
        if group is None:
            raise ClusterError(
                f"Group '{address.group_name}' has been launched again since; {address} is of an old launch."
            )
        return group

    # Leases

    def _lock(self, call: Call) -> None:
        (key,) = call.args
        self._leases.lock(key, call.sender.uid, call.reply)

    def _unlock(self, call: Call) -> None:
        (key,) = call.args
        self._leases.unlock(key, call.sender.uid)
        call.reply()

    def _take_port(self, call: Call) -> None:
        node, port = call.args
        call.reply(self._leases.take_port(node, port, call.sender.uid))

    # Channels

    def _channel_host(self, call: Call) -> None:
        (node_id,) = call.args
        if node_id in self._hosts:
            call.reply(self._hosts[node_id])
            return
        self._host_waiters[node_id].append(call)
        self._need_host(node_id)

    def _need_host(self, node_id: str) -> None:
        if node_id not in self._starting_hosts:
            self._starting_hosts.add(node_id)
            self._start_host(node_id)

    def host_started(self, node_id: str, host: EndpointInfo) -> None:
        """A channel host is ready."""
        self._starting_hosts.discard(node_id)
        self._hosts[node_id] = host
        self._processes[host.uid] = host
        self._labels[host.uid] = "channel host"
        self._heartbeat.watch(host)
        for death in self._deaths.values():
            self._endpoint.notify(host, "died", death)
        for node, *worker in self._watched.values():
            if node == node_id:
                self._endpoint.notify(host, "watch", tuple(worker))
        for call in self._host_waiters.pop(node_id, []):
            call.reply(host)

    def host_gone(self, node_id: str, reason: str) -> None:
        """A channel host could not start, or has died."""
        error = WorkerDiedError(f"The channel host of node {node_id[:8]} is gone: {reason}", group="channel host")
        self._starting_hosts.discard(node_id)
        for call in self._host_waiters.pop(node_id, []):
            call.fail(error)
        host = self._hosts.pop(node_id, None)
        if host is None:
            return
        self._channels = {name: entry for name, entry in self._channels.items() if entry.host.uid != host.uid}
        death: Death = (None, host.uid, error, False)
        self._deaths[host.uid] = death
        self._remove_process(host.uid, error, death)
        if any(node == node_id for node, *_ in self._watched.values()):
            self._need_host(node_id)

    def _channel_add(self, call: Call) -> None:
        """Register a channel; a worker that was launched again gets back the one its predecessor created."""
        name, host, channel_id, maxsize = call.args
        uid, label = call.sender.uid, self._labels.get(call.sender.uid)
        known = self._channels.get(name)
        if known is not None and (known.uid in self._processes or (known.label, known.maxsize) != (label, maxsize)):
            raise ClusterError(f"A channel named '{name}' exists; use Channel.connect('{name}'), or close it first.")
        if known is not None:
            host, channel_id = known.host, known.channel_id
        self._channels[name] = _Channel(host, channel_id, maxsize, uid, label)
        call.reply(self._channels[name].place)
        for waiter in self._channel_waiters.pop(name, []):
            waiter.reply(self._channels[name].place)

    def _channel_find(self, call: Call) -> None:
        (name,) = call.args
        if name in self._channels:
            call.reply(self._channels[name].place)
        else:
            self._channel_waiters[name].append(call)

    def _channel_remove(self, call: Call) -> None:
        name, channel_id = call.args
        if name in self._channels and self._channels[name].channel_id == channel_id:
            del self._channels[name]
        call.reply()


class ManagerActor:
    """The Ray actor around ``Manager``: Ray's side of health and of starting channel hosts."""

    def __init__(self, spec: RunSpec) -> None:
        configure_worker_logging("manager", None)
        context = ray.get_runtime_context()
        self._spec = spec
        self._runtime = Runtime(
            spec, node_id=context.get_node_id(), node_ip=ray.util.get_node_ip_address(), label="manager"
        )
        self._manager = Manager(self._runtime, self._request_host)
        self._tasks: set[asyncio.Task[None]] = set()
        self._ray_loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> EndpointInfo:
        """Return where the manager listens."""
        self._ray_loop = asyncio.get_running_loop()
        return self._runtime.endpoint.info

    async def alive(self) -> None:
        """Never return: the driver learns of the manager's death from the failure of this call."""
        await asyncio.Event().wait()

    async def experiment_name(self) -> str | None:
        """Return what the run works on; None if it was not named."""
        return self._spec.experiment_name

    async def status(self) -> dict[str, Any]:
        """Return what every process of the run does at this moment; see ``rlinf.scheduler.run_status``."""
        loop = asyncio.get_running_loop()
        described: asyncio.Future[RunState] = loop.create_future()

        def describe() -> None:
            state = self._manager.describe()
            loop.call_soon_threadsafe(described.set_result, state)

        self._runtime.endpoint.loop.call_soon_threadsafe(describe)
        state = await described
        reports = await asyncio.to_thread(request_reports, self._runtime.endpoint, list(state.processes.values()))
        run = {"namespace": self._spec.namespace, "experiment_name": self._spec.experiment_name}
        return {**run, **assemble(state, reports)}

    async def watch(self, address: WorkerAddress, calls: list[Any]) -> None:
        """Watch the never-finishing call on a worker.

        Args:
            address: The worker.
            calls: The call's reference, in a list so that Ray does not wait for it.
        """
        self._spawn(self._watch_worker(address, calls[0]))

    def __repr__(self) -> str:
        return "manager"

    async def _watch_worker(self, address: WorkerAddress, call: Any) -> None:
        reason = await _end_of(call)
        self._runtime.endpoint.loop.call_soon_threadsafe(self._manager.worker_gone, address, reason)

    def _request_host(self, node_id: str) -> None:
        assert self._ray_loop is not None, "start comes before any request"
        self._ray_loop.call_soon_threadsafe(lambda: self._spawn(self._run_host(node_id)))

    async def _run_host(self, node_id: str) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        from rlinf.scheduler.channel.host import ChannelHostActor

        loop = self._runtime.endpoint.loop
        spec = RunSpec(
            self._spec.namespace,
            self._spec.keys,
            self._spec.spans_nodes,
            self._spec.log_dir,
            self._runtime.endpoint.info,
        )
        affinity = NodeAffinitySchedulingStrategy(node_id, soft=False)
        try:
            actor = ray.remote(ChannelHostActor).options(num_cpus=0, scheduling_strategy=affinity).remote(spec)
            info = await actor.start.remote()
        except ray.exceptions.RayError as error:
            loop.call_soon_threadsafe(self._manager.host_gone, node_id, str(error))
            return
        loop.call_soon_threadsafe(self._manager.host_started, node_id, info)
        reason = await _end_of(actor.alive.remote()) or "it left the run"
        loop.call_soon_threadsafe(self._manager.host_gone, node_id, reason)

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _launched(address: WorkerAddress) -> tuple[str, int, int]:
    return address.group_name, address.rank, address.incarnation


async def _end_of(call: Any) -> str | None:
    """Wait until a process's never-finishing call ends, and say why; None if it has just returned."""
    try:
        await call
    except ray.exceptions.RayError as error:
        get_logger(__name__).debug("A watched process ended: %s", error)
        return str(error)
    return None


def _reply_to(call: Call) -> LookupCallback:
    def callback(members: list[WorkerInfo] | None, error: RLinfError | None) -> None:
        if error is not None:
            call.fail(error)
        else:
            call.reply(members)

    return callback
