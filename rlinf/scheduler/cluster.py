"""The cluster a run uses: its nodes, its manager, and everything that must end with it."""

from __future__ import annotations

import atexit
import contextlib
import sys
import uuid
from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any, NoReturn

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rlinf.config.schema.cluster import ClusterConfig
from rlinf.errors import ClusterError, PlacementError, RLinfError, WorkerDiedError
from rlinf.placement import (
    FlexiblePlacementStrategy,
    NodeGroup,
    NodeInfo,
    Placement,
    PlacementStrategy,
    build_node_groups,
    find_node_group,
)
from rlinf.scheduler.address import MANAGER_NAME, RunSpec, ray_namespace
from rlinf.scheduler.attach import attach_ray
from rlinf.scheduler.comm.transport import new_keys, remove_socket_folder
from rlinf.scheduler.environment import (
    NodeSettings,
    ProcessEnvironment,
    check_interpreters,
    code_folders,
    early_variables,
    newer_than,
)
from rlinf.scheduler.gcs_watch import GcsWatch
from rlinf.scheduler.group_processes import GroupProcesses, close_groups
from rlinf.scheduler.manager import ManagerActor
from rlinf.scheduler.nodes import alive_nodes, describe_node, gather_probes, rank_nodes, start_probes, wait_for_nodes
from rlinf.scheduler.probe import find_free_port
from rlinf.scheduler.ray_calls import results_of
from rlinf.scheduler.runtime import Runtime, enter_runtime, find_runtime, leave_runtime
from rlinf.scheduler.tracing import TraceCollector
from rlinf.telemetry.trace_export import trace_path
from rlinf.utils.logging import get_logger

# Other nodes' socket folders are cleaned within this time, or left to the next run's sweep.
_CLEANUP_SECONDS = 5.0


class Cluster:
    """Attaches to Ray, or starts one, and describes its nodes; a context manager.

    Leaving it ends the actors it made, Ray itself if it started it, and nothing else.

    Args:
        num_nodes: Nodes to use; None or 0 is what ``cluster_cfg`` says, else all that are alive.
        cluster_cfg: The recipe's ``cluster`` section.
        log_dir: Folder under which ``worker_logs/`` is written; None writes none.
        experiment_name: What the run works on, for ``rlinf status``.

    Raises:
        ClusterError: Ray cannot be reached, nodes are missing, or their ranks do not fit.
        PlacementError: The recipe's node groups do not fit the nodes.

    Example:
        >>> with Cluster() as cluster:  # doctest: +SKIP
        ...     group = MyWorker.create_group().launch(cluster)
        ...     group.work().wait()
    """

    def __init__(
        self,
        num_nodes: int | None = None,
        cluster_cfg: ClusterConfig | None = None,
        log_dir: str | None = None,
        *,
        experiment_name: str | None = None,
    ) -> None:
        self.config = cluster_cfg or ClusterConfig()
        self.namespace = uuid.uuid4().hex[:8]
        self._groups: list[GroupProcesses] = []
        self._closed = False
        # Whether deaths are no longer reported: Ray may not answer then.
        self._is_lost = False
        self.runtime: Runtime
        self.manager: Any = None
        self.trace_collector: TraceCollector | None = None
        self._gcs_watch: GcsWatch | None = None
        attachment = attach_ray(ray_namespace(self.namespace))
        self._owns_ray = attachment.owned
        atexit.register(self.close)
        try:
            self._start(num_nodes or self.config.num_nodes, log_dir, experiment_name)
        except BaseException:
            self.close()
            raise
        get_logger(__name__).info("Using %s: %s.", attachment.description, self._resources())

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self._nodes)

    @property
    def num_accelerators(self) -> int:
        """Accelerators on all nodes together."""
        return sum(node.num_accelerators for node in self._nodes)

    def get_node_group(self, label: str | None = None) -> NodeGroup:
        """Return a node group; None is the default one over all nodes.

        Raises:
            PlacementError: No group has this label.
        """
        return find_node_group(self._node_groups, label)

    def get_node_info(self, node_rank: int) -> NodeInfo:
        """Return the description of a node.

        Raises:
            PlacementError: There is no such node.
        """
        if not 0 <= node_rank < len(self._nodes):
            raise PlacementError(f"The cluster has nodes 0-{len(self._nodes) - 1}; there is no node {node_rank}.")
        return self._nodes[node_rank]

    def get_node_ip(self, node_rank: int) -> str:
        """Return the address of a node."""
        return self.get_node_info(node_rank).ip

    def allocate(
        self, cls: type, node_rank: int = 0, *args: Any, options: Mapping[str, Any] | None = None, **kwargs: Any
    ) -> Any:
        """Start a plain Ray actor on a node; it ends with the cluster.

        Args:
            cls: The actor's class.
            node_rank: Cluster rank of the node.
            *args: Positional arguments of its constructor.
            options: Further options for Ray.
            **kwargs: Keyword arguments of its constructor.

        Returns:
            Ray's handle.
        """
        affinity = NodeAffinitySchedulingStrategy(self.get_node_info(node_rank).node_id, soft=False)
        merged = {"num_cpus": 0, "scheduling_strategy": affinity, **(options or {})}
        actor = ray.remote(cls).options(**merged).remote(*args, **kwargs)
        self._actors.append(actor)
        return actor

    def close(self) -> None:
        """End everything this cluster started; does nothing the second time."""
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        if self._gcs_watch is not None:
            self._gcs_watch.close()
        if ray.is_initialized():
            self._end_actors()
        if self.trace_collector is not None:
            self.trace_collector.write()
        if hasattr(self, "runtime"):
            leave_runtime(self.runtime)
        remove_socket_folder(self.namespace)
        if self._owns_ray:
            ray.shutdown()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        """Refuse to travel.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            "A Cluster stays in the driver: it holds connections and the run's key. Hand workers a WorkerGroup, a "
            "Channel or placements instead."
        )

    # Published names

    @property
    def accelerator_ranks(self) -> list[list[int]]:
        """Global ranks of each node's accelerators, by node rank; an empty list for a node without any."""
        ends = list(accumulate(node.num_accelerators for node in self._nodes))
        return [list(range(end - node.num_accelerators, end)) for end, node in zip(ends, self._nodes, strict=True)]

    @staticmethod
    def has_initialized() -> bool:
        """Whether this process takes part in a run: as the driver of an open cluster, or as a worker."""
        return find_runtime() is not None

    @staticmethod
    def find_free_port(max_port_num: int | None = None) -> int:
        """Return a TCP port that nothing listens on right now; ``Worker.acquire_free_port`` also reserves it.

        Args:
            max_port_num: Largest port that is allowed; None is any.
        """
        return find_free_port(max_port_num)

    @staticmethod
    def get_alive_nodes() -> list[dict[str, Any]]:
        """Return Ray's description of the alive nodes."""
        return alive_nodes()

    # What groups need of their cluster

    def place(self, strategy: PlacementStrategy | None, isolate: bool) -> list[Placement]:
        """Return one placement per rank; without a strategy one rank per hardware rank of the default group."""
        if strategy is None:
            count = self.get_node_group().num_hardware_ranks
            strategy = FlexiblePlacementStrategy([[rank] for rank in range(count)])
        return strategy.get_placement(self, isolate)

    def add_group(self, group: GroupProcesses) -> None:
        """Register a group that ends with the cluster."""
        if self._closed:
            raise ClusterError("The cluster is closed.")
        if group not in self._groups:
            self._groups.append(group)

    def process_environment(
        self, placement: Placement, launch: Mapping[str, str]
    ) -> tuple[ProcessEnvironment, dict[str, Any]]:
        """Return what a worker's process sets itself, and what Ray must set before the process starts."""
        settings = self._settings.environment(placement.node_group_label, placement.cluster_node_rank)
        configured = {
            name: str(value) for entry in (settings.env_vars if settings else []) for name, value in entry.items()
        }
        # Compared at every launch: the user may have changed a variable since the last one.
        environment = ProcessEnvironment(newer_than(self._head_hashes), configured, dict(launch), code_folders())
        runtime_env: dict[str, Any] = {}
        if early := early_variables(configured):
            runtime_env["env_vars"] = early
        if settings and settings.python_interpreter_path:
            runtime_env["py_executable"] = settings.python_interpreter_path
        return environment, runtime_env

    def visible_accelerators(self, placement: Placement) -> tuple[str, ...]:
        """Return the ids of the accelerators that a process sees, as visible-devices variables want them."""
        ids = self.get_node_info(placement.cluster_node_rank).accelerator_ids
        return tuple(ids[int(number)] for number in placement.visible_accelerators)

    def hardware_infos(self, placement: Placement) -> tuple[Mapping[str, Any], ...]:
        """Return a description of each hardware rank of a placement."""
        node = self.get_node_info(placement.cluster_node_rank)
        devices = self._settings.devices(placement.node_group_label, placement.cluster_node_rank)
        if devices is not None:
            return tuple(devices[rank] for rank in placement.local_hardware_ranks)
        if placement.local_accelerator_rank < 0:
            return ()
        return tuple(
            {"type": str(node.accelerator_type), "local_rank": rank, "model": node.accelerator_models[rank]}
            for rank in placement.local_hardware_ranks
        )

    def _start(self, num_nodes: int | None, log_dir: str | None, experiment_name: str | None) -> None:
        self._actors: list[Any] = []
        here = ray.get_runtime_context().get_node_id()
        alive = wait_for_nodes(num_nodes)
        spec = RunSpec(
            self.namespace, new_keys(), spans_nodes=len(alive) > 1, log_dir=log_dir, experiment_name=experiment_name
        )
        affinity = NodeAffinitySchedulingStrategy(here, soft=False)
        options: dict[str, Any] = {"name": MANAGER_NAME, "namespace": ray_namespace(self.namespace)}
        self.manager = (
            ray.remote(ManagerActor)
            .options(num_cpus=0, max_concurrency=100_000, scheduling_strategy=affinity, **options)
            .remote(spec)
        )
        starting = self.manager.start.remote()
        probes = start_probes(alive, here)
        probed = gather_probes(probes)
        ordered = rank_nodes(probed, num_nodes, here)
        self._nodes = [describe_node(rank, probe) for rank, probe in enumerate(ordered)]
        # Also where the driver's node is not among those in use: without them every variable would seem new.
        self._head_hashes = next((probe.environment_hashes for probe in probed if probe.node_id == here), {})
        self._node_groups = build_node_groups(self._nodes, self.config.node_groups, self.config.cpu_slots_per_node)
        self._settings = NodeSettings(self.config.node_groups, self._node_groups)
        check_interpreters(self._settings, self._nodes)
        tracer = self.config.tracer
        events = tracer.max_events_per_worker if tracer.enable else 0
        (manager,) = results_of([starting], "the run's manager")
        self.run_spec = replace(spec, manager=manager, trace_events=events)
        own_ip = next(node["NodeManagerAddress"] for node in alive if node["NodeID"] == here)
        self.runtime = Runtime(self.run_spec, node_id=here, node_ip=own_ip)
        enter_runtime(self.runtime)
        self.runtime.join()
        if tracer.enable:
            self.trace_collector = TraceCollector(self.runtime.endpoint, trace_path(tracer, log_dir))
        self.manager.alive.remote().future().add_done_callback(self._on_manager_end)
        self._gcs_watch = GcsWatch(ray.get_runtime_context().gcs_address, self._end_all_waits)

    def _on_manager_end(self, call: Any) -> None:
        """The manager's never-finishing call has ended: without a manager no wait is sure to end."""
        if self._closed or self.run_spec.manager is None:
            return
        error = WorkerDiedError(f"The run's manager is gone: {call.exception()}", group="manager", rank=0)
        self._end_all_waits(error)
        self.runtime.endpoint.peer_died(self.run_spec.manager.uid, error)

    def _end_all_waits(self, error: RLinfError) -> None:
        """Fail all waits of the run's processes, since deaths are no longer reported."""
        if self._closed:
            return
        self._is_lost = True
        get_logger(__name__).error("%s All waits of the run end.", error)
        self.runtime.fail_pending(error)
        for group in self._groups:
            for member in group.members:
                with contextlib.suppress(ClusterError):  # this cluster is being closed
                    self.runtime.endpoint.notify(member.endpoint, "run_failed", (error,))

    def _end_actors(self) -> None:
        close_groups(self._groups)
        for actor in self._actors if hasattr(self, "_actors") else ():
            ray.kill(actor)
        if self.manager is not None:
            ray.kill(self.manager)  # the channel hosts are its own, and end with it
        here = self.runtime.node_id if hasattr(self, "runtime") else None
        others = [node for node in getattr(self, "_nodes", []) if node.node_id != here]
        if others and not self._is_lost and sys.exc_info()[0] is None:
            clean = ray.remote(remove_socket_folder)
            done = [
                clean.options(
                    num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node.node_id, soft=True)
                ).remote(self.namespace)
                for node in others
            ]
            ray.wait(done, num_returns=len(done), timeout=_CLEANUP_SECONDS)

    def _resources(self) -> str:
        group = self.get_node_group()
        nodes = f"{self.num_nodes} node{'s' if self.num_nodes > 1 else ''}"
        return nodes if group.kind == "node" else f"{nodes}, {group.num_hardware_ranks} {group.kind_name}(s)"
