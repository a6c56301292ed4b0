"""A group of workers: launched together, called together, closed together."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rlinf.errors import ClusterError, WorkerError
from rlinf.placement import Placement, PlacementStrategy
from rlinf.registry import did_you_mean
from rlinf.scheduler.address import WorkerAddress, WorkerIdentity, WorkerInfo
from rlinf.scheduler.calls import RemoteFailure
from rlinf.scheduler.comm.serialization import encode
from rlinf.scheduler.comm.work import WATCHDOG_SECONDS, AsyncWork
from rlinf.scheduler.environment import launch_environment
from rlinf.scheduler.group_processes import GroupProcesses, close_groups
from rlinf.scheduler.results import WorkerGroupFuncResult
from rlinf.scheduler.run_status import request_reports, summarize
from rlinf.scheduler.runtime import Runtime, current_runtime
from rlinf.scheduler.shell import WorkerShell
from rlinf.utils.logging import get_logger
from rlinf.utils.published import note_unused, published_keywords

if TYPE_CHECKING:
    from rlinf.scheduler.cluster import Cluster

# A subclass of Worker; that module imports this one.
W = TypeVar("W")


class WorkerGroup(Generic[W]):
    """All ranks of one worker class; public methods of the class can be called on the group.

    ``group.method(...)`` runs on every rank (or those of ``execute_on``) and returns a ``WorkerGroupFuncResult``.

    Args:
        worker_class: The class.
        args: Positional arguments of its constructor.
        kwargs: Keyword arguments of its constructor.
    """

    def __init__(self, worker_class: type[W], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> None:
        self._class = worker_class
        self._payload: tuple[Any, ...] = (worker_class, args, kwargs or {})
        self._name = worker_class.__name__
        self._processes = GroupProcesses()
        self._targets: tuple[int, ...] = ()
        self._methods: set[str] = set()
        self._restart: Literal["never", "on_failure"] = "never"
        self._relaunch: Callable[[], None] | None = None

    def launch(
        self,
        cluster: Cluster,
        placement_strategy: PlacementStrategy | None = None,
        name: str | None = None,
        max_concurrency: int | None = None,
        isolate_gpu: bool = True,
        restart: Literal["never", "on_failure"] = "never",
        wait: bool = True,
        catch_system_failure: bool | None = None,
        disable_distributed_log: bool | None = None,
    ) -> WorkerGroup[W]:
        """Start all ranks in parallel and return when every one is ready.

        Args:
            cluster: Where to run.
            placement_strategy: Which hardware each rank gets; None is one rank per hardware rank of the cluster.
            name: Name of the group, unique among running groups; None is the class's name.
            max_concurrency: Accepted for familiarity: sync methods run one at a time, async ones without limit.
            isolate_gpu: Whether a rank sees its own accelerators only.
            restart: With ``"on_failure"`` a call on the group launches it again first if a rank has died. The call that
                the death interrupts raises in any case, and what workers held in memory is gone. Runners decide for
                themselves, with ``relaunch``.
            wait: False returns at once, so that several groups start together; call ``wait_ready`` before using it.
            catch_system_failure: Accepted from published code; has no effect, which is logged once.
            disable_distributed_log: As ``catch_system_failure``.

        Returns:
            This group.

        Raises:
            WorkerError: A rank's ``__init__`` raised; the other ranks are ended.
            WorkerDiedError: A rank's process died while it started.
            ClusterError: A group of this name is running.
            PlacementError: The cluster cannot satisfy the strategy.
        """
        if catch_system_failure is not None:
            note_unused("launch(catch_system_failure=)", "the failure of a rank ends every wait for it in any case")
        if disable_distributed_log is not None:
            note_unused("launch(disable_distributed_log=)", "each rank's log is one file in worker_logs")
        self._name = name or self._class.__name__
        self._restart = restart
        self._relaunch = lambda: self._start(cluster, cluster.place(placement_strategy, isolate_gpu))
        self._relaunch()
        return self.wait_ready() if wait else self

    def wait_ready(self) -> WorkerGroup[W]:
        """Wait until every rank is ready, after ``launch(wait=False)``.

        Returns:
            This group.

        Raises:
            WorkerError: As ``launch``.
            WorkerDiedError: As ``launch``.
        """
        processes = self._processes
        if processes.starting is not None and self._processes.runtime is not None:
            first, processes.starting = processes.starting, None
            try:
                processes.members = self._await_ready(self._processes.runtime, first)
                if processes.collector is not None:
                    processes.collector.meet(processes.members)
            except BaseException:
                processes.starting = first
                self.close()
                raise
        return self

    def relaunch(self, *, wait: bool = True) -> None:
        """End what is left of the group and launch it again, under the same name and a new incarnation.

        Args:
            wait: As in ``launch``.

        Raises:
            ClusterError: The group was not launched by this process.
        """
        if self._relaunch is None:
            raise ClusterError(f"Group '{self._name}' was not launched here; only its launcher can launch it again.")
        self.close()
        self._relaunch()
        if wait:
            self.wait_ready()

    def execute_on(self, *ranks: int) -> WorkerGroup[W]:
        """Choose the ranks that the next method call runs on; none means all.

        Raises:
            ValueError: The group has no such rank.
        """
        for rank in ranks:
            if not 0 <= rank < len(self._members):
                raise ValueError(f"Group '{self._name}' has ranks 0-{len(self._members) - 1}; there is no rank {rank}.")
        self._targets = ranks
        return self

    @classmethod
    @published_keywords(worker_cls="worker_class", group_name="name")
    def from_group_name(cls, worker_class: type[W], name: str, timeout: float | None = None) -> WorkerGroup[W]:
        """Return a handle of a group that another process launched, waiting for its launch.

        Args:
            worker_class: Class of its workers.
            name: The group's name.
            timeout: Seconds to wait; None waits without limit.
        """
        group = cls(worker_class)
        group._name = name
        group._processes.runtime = current_runtime()
        what = f"{group._processes.runtime.label} waits for the launch of group '{name}'"
        group._processes.members = AsyncWork(group._processes.runtime.lookup_group(name, True), list, what).wait(
            timeout
        )
        return group

    @property
    def name(self) -> str:
        """The group's name."""
        return self._name

    @property
    def worker_group_name(self) -> str:
        """Published name of ``name``."""
        return self._name

    @property
    def worker_cls_name(self) -> str:
        """Name of the workers' class."""
        return self._class.__name__

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self._members)

    @property
    def restart(self) -> str:
        """What the next call does when a rank has died: raise (``"never"``), or launch again (``"on_failure"``)."""
        return self._restart

    @property
    def worker_info_list(self) -> list[WorkerInfo]:
        """What is known about each rank."""
        return list(self._members)

    def close(self) -> None:
        """End all ranks: they finish the method they run, within seconds, or are killed; harmless the second time."""
        close_groups([self._processes])

    _close = close

    @property
    def _members(self) -> list[WorkerInfo]:
        return self._processes.members

    def __getattr__(self, method: str) -> Callable[..., WorkerGroupFuncResult]:
        if method.startswith("_"):
            raise AttributeError(method)
        # Taken here, not by the call: a name or an argument that raises must not leave them to the next call.
        targets, self._targets = self._targets, ()
        if method not in self._methods:
            self._check_method(method)
        return lambda *args, **kwargs: self._call(method, targets, args, kwargs)

    def _check_method(self, method: str) -> None:
        function = inspect.getattr_static(self._class, method, None)
        if function is None or not callable(getattr(self._class, method)):
            names = [entry for entry in dir(self._class) if not entry.startswith("_")]
            raise AttributeError(f"{self._class.__name__} has no method '{method}'.{did_you_mean(method, names)}")
        self._methods.add(method)

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach, (self._class, self._name, self._members)

    def __repr__(self) -> str:
        return f"WorkerGroup({self._class.__name__}, name={self._name!r}, world_size={len(self._members)})"

    def _call(
        self, method: str, targets: tuple[int, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> WorkerGroupFuncResult:
        self._revive()
        self.wait_ready()
        if self._processes.runtime is None or not self._members:
            raise ClusterError(f"Group '{self._name}' is not running; launch it before calling {method}().")
        members = [self._members[rank] for rank in targets] if targets else self._members
        endpoint = self._processes.runtime.endpoint
        frames = endpoint.share(encode((args, kwargs)))
        calls = [(member.address, endpoint.request(member.endpoint, "call", (method,), frames)) for member in members]
        return WorkerGroupFuncResult(method, calls, self._look)

    def _revive(self) -> None:
        """Launch again what has died, where ``restart`` says so; another process's handle finds the new ranks."""
        if self._processes.runtime is None:
            return
        is_dead = self._processes.runtime.endpoint.is_dead
        death = next((error for m in self._members if (error := is_dead(m.endpoint.uid)) is not None), None)
        if death is None:
            return
        if self._relaunch is None:
            self._processes.members = self._processes.runtime.lookup_group(self._name, False).result()
        elif self._restart == "on_failure":
            get_logger(__name__).warning("%s Launching group '%s' again.", death, self._name)
            self.relaunch()

    def _look(self, addresses: Sequence[WorkerAddress]) -> dict[WorkerAddress, str]:
        """Query what ranks do."""
        if self._processes.runtime is None:
            return {}
        members = [self._members[address.rank] for address in addresses if address.rank < len(self._members)]
        reports = request_reports(self._processes.runtime.endpoint, [member.endpoint for member in members])
        return {member.address: summarize(reports.get(member.endpoint.uid)) for member in members}

    def _start(self, cluster: Cluster, placements: list[Placement]) -> None:
        processes = self._processes
        runtime = processes.runtime = cluster.runtime
        processes.collector = cluster.trace_collector
        incarnation = runtime.query("group_begin", self._name, len(placements))
        # Stored once: as a plain argument it would be stored again for each rank.
        payload = ray.put([bytes(frame) for frame in encode(self._payload)])
        first = WorkerAddress(self._name, 0, incarnation)
        cluster.add_group(processes)
        try:
            for placement in placements:
                processes.actors.append(self._start_rank(cluster, placement, incarnation, placements, payload))
        except BaseException:
            processes.starting = first
            self.close()
            raise
        processes.starting = first

    def _start_rank(
        self,
        cluster: Cluster,
        placement: Placement,
        incarnation: int,
        placements: list[Placement],
        payload: ray.ObjectRef,
    ) -> tuple[Any, Any]:
        address = WorkerAddress(self._name, placement.rank, incarnation)
        accelerators = cluster.visible_accelerators(placement)
        identity = WorkerIdentity(
            address=address,
            world_size=len(placements),
            node_rank=placement.cluster_node_rank,
            environment=launch_environment(self._name, placement, placements, cluster.namespace, accelerators),
            hardware_ranks=tuple(placement.local_hardware_ranks),
            accelerators=accelerators,
            hardware_infos=cluster.hardware_infos(placement),
        )
        environment, runtime_env = cluster.process_environment(placement, identity.environment)
        affinity = NodeAffinitySchedulingStrategy(
            cluster.get_node_info(placement.cluster_node_rank).node_id, soft=False
        )
        options: dict[str, Any] = {"num_cpus": 0, "scheduling_strategy": affinity}
        if runtime_env:
            options["runtime_env"] = runtime_env
        actor = ray.remote(WorkerShell).options(**options).remote(cluster.run_spec, identity, environment)
        run = actor.run.remote(payload)
        cluster.manager.watch.remote(address, [run])
        return actor, run

    def _await_ready(self, runtime: Runtime, first: WorkerAddress) -> list[WorkerInfo]:
        started = time.monotonic()
        pending = runtime.request("group_wait", first)
        while True:
            try:
                members: list[WorkerInfo] = pending.result(timeout=WATCHDOG_SECONDS).value
            except FutureTimeoutError:
                if pending.done():
                    raise
                waited = time.monotonic() - started
                get_logger(__name__).info("Group '%s' has been starting for %.0f s.", self._name, waited)
                continue
            except WorkerError as error:
                if isinstance(error.failure, RemoteFailure):
                    raise error.failure.to_error() from error.failure.cause()
                raise
            return members


def _attach(worker_class: type[Any], name: str, members: list[WorkerInfo]) -> WorkerGroup[Any]:
    group = WorkerGroup[Any](worker_class)
    group._name = name
    group._processes.members = members
    group._processes.runtime = current_runtime()
    return group
