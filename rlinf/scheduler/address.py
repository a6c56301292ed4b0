"""Names of processes: where an endpoint listens, which worker it belongs to, what a worker's launch decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Name of a run's manager among Ray's actors.
MANAGER_NAME = "rlinf_manager"
_RAY_NAMESPACE = "rlinf_"


def ray_namespace(namespace: str) -> str:
    """Return Ray's namespace for a run."""
    return f"{_RAY_NAMESPACE}{namespace}"


def run_of(ray_namespace: str) -> str:
    """Return the run that has this namespace in Ray."""
    return ray_namespace.removeprefix(_RAY_NAMESPACE)


@dataclass(frozen=True)
class EndpointInfo:
    """Where a process listens.

    Attributes:
        uid: Random name of the process, unique over the run.
        node_id: Ray's id of its node; processes of one node talk over ``ipc``.
        ipc: Address for processes of the same node.
        tcp: Address for processes of other nodes, or None in a run on one node.
    """

    uid: str
    node_id: str
    ipc: str
    tcp: str | None = None


@dataclass(frozen=True)
class WorkerAddress:
    """A worker's name; prints as ``group:rank``.

    Attributes:
        group_name: Name of the group.
        rank: Rank within the group.
        incarnation: How many times the group had been launched when this worker was; not part of equality.
    """

    group_name: str
    rank: int
    incarnation: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return f"{self.group_name}:{self.rank}"


@dataclass(frozen=True)
class WorkerInfo:
    """What is known about a running worker.

    Attributes:
        address: The worker's name.
        rank: Rank within the group.
        node_rank: Cluster rank of its node.
        node_ip: Address of its node.
        pid: Process id on that node.
        hardware_ranks: Hardware ranks it runs on, counted within the node.
        accelerators: Ids of the accelerators it sees.
        endpoint: Where it listens.
    """

    address: WorkerAddress
    rank: int
    node_rank: int
    node_ip: str
    pid: int
    hardware_ranks: tuple[int, ...]
    accelerators: tuple[str, ...]
    endpoint: EndpointInfo


@dataclass(frozen=True)
class WorkerIdentity:
    """What a launch decides about one worker, before its process exists.

    Attributes:
        address: The worker's name.
        world_size: Ranks in the group.
        node_rank: Cluster rank of its node.
        environment: Variables the launch itself sets.
        hardware_ranks: Hardware ranks it runs on, counted within the node.
        accelerators: Ids of the accelerators it sees.
        hardware_infos: Description of each hardware rank it was placed on.
    """

    address: WorkerAddress
    world_size: int
    node_rank: int
    environment: dict[str, str]
    hardware_ranks: tuple[int, ...] = ()
    accelerators: tuple[str, ...] = ()
    hardware_infos: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class RunSpec:
    """What a process needs to join a run; travels through Ray only, never through a file.

    Attributes:
        namespace: Name of the run.
        keys: Public and secret key of the run's encrypted connections between nodes.
        spans_nodes: Whether endpoints must listen on the network.
        log_dir: Folder for worker logs, or None for none.
        manager: Where the run's manager listens; None while the manager itself starts.
        trace_events: Events that a process keeps for the trace; 0 records none.
        experiment_name: What the run works on; None if it was not named.
    """

    namespace: str
    keys: tuple[bytes, bytes] = field(repr=False)
    spans_nodes: bool
    log_dir: str | None
    manager: EndpointInfo | None = None
    trace_events: int = 0
    experiment_name: str | None = None
