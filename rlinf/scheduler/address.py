"""Names of processes: where an endpoint listens, which worker it belongs to, what a worker's launch decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True, init=False, order=True)
class WorkerAddress:
    """A worker's name; prints as ``group:rank``.

    Args:
        root_group_name: Name of the group.
        ranks: Rank within the group. A list is a path of ranks and ends with the worker's own; an empty one is rank 0.
        incarnation: How many times the group had been launched when this worker was; not part of equality.

    Attributes:
        group_name: Name of the group.
        parent_ranks: The path before the worker's own rank; empty for every worker that a group launches.
        rank: Rank within the group.
        incarnation: As the argument.
    """

    group_name: str
    parent_ranks: tuple[int, ...]
    rank: int
    incarnation: int = field(compare=False)

    def __init__(self, root_group_name: str, ranks: int | Sequence[int] = (), incarnation: int = 0) -> None:
        *parents, rank = (ranks,) if isinstance(ranks, int) else ranks or (0,)
        self.__dict__.update(
            group_name=root_group_name, parent_ranks=tuple(parents), rank=rank, incarnation=incarnation
        )

    def __str__(self) -> str:
        return ":".join(map(str, (self.group_name, *self.parent_ranks, self.rank)))

    # Published names

    @property
    def root_group_name(self) -> str:
        """Published name of ``group_name``."""
        return self.group_name

    def get_name(self) -> str:
        """Published name of ``str(address)``."""
        return str(self)

    def get_parent_rank(self) -> int:
        """Return the rank of the worker that this one belongs to; 0 for every worker that a group launches."""
        return self.parent_ranks[-1] if self.parent_ranks else 0

    def get_parent_address(self) -> WorkerAddress | None:
        """Return the address of the worker that this one belongs to; None for every worker that a group launches."""
        return WorkerAddress(self.group_name, self.parent_ranks) if self.parent_ranks else None

    def get_child_address(self, rank: int) -> WorkerAddress:
        """Return the address of a worker that belongs to this one."""
        return WorkerAddress(self.group_name, [*self.parent_ranks, self.rank, rank])

    @classmethod
    def from_parent_name_rank(cls, parent_name: str, rank: int) -> WorkerAddress:
        """Return the address of a rank of a group, or of a worker that belongs to another.

        Args:
            parent_name: Name of the group, or of the other worker.
            rank: Rank within the group, or below the other worker.
        """
        return cls.from_name(f"{parent_name}:{rank}")

    @classmethod
    def from_name(cls, worker_name: str) -> WorkerAddress:
        """Return the address that prints as ``worker_name``.

        Raises:
            ValueError: The name does not end with a rank, as ``group:0`` does.
        """
        group, *ranks = worker_name.split(":")
        if not ranks or not all(rank.isdecimal() for rank in ranks):
            raise ValueError(f"A worker's name is 'group:rank', for example 'RolloutGroup:0'; got '{worker_name}'.")
        return cls(group, [int(rank) for rank in ranks])


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
