"""The records that placement takes and gives: nodes, node groups, and one seat for each process."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import Enum
from itertools import accumulate
from typing import Literal, Protocol, get_args

from rlinf.errors import PlacementError

ResourceKind = Literal["accelerator", "robot", "cpu_slot", "node"]
RESOURCE_KINDS: tuple[str, ...] = get_args(ResourceKind)

DEFAULT_GROUP_LABEL = "cluster"
"""The group over all nodes that a placement without ``node_group`` refers to."""
NODE_GROUP_LABEL = "node"
"""The group whose hardware ranks are the nodes themselves."""
RESERVED_LABELS = (DEFAULT_GROUP_LABEL, NODE_GROUP_LABEL)

_KIND_NAMES = {"accelerator": "accelerator", "robot": "robot", "cpu_slot": "CPU slot", "node": "node"}


class AcceleratorType(str, Enum):
    """Vendor family of a node's accelerators; the value is what ``ACCELERATOR_TYPE`` holds in a worker."""

    NV_GPU = "NV_GPU"
    AMD_GPU = "AMD_GPU"
    INTEL_GPU = "INTEL_GPU"
    MUSA_GPU = "MUSA_GPU"
    NPU = "NPU"
    NO_ACCEL = "NO_ACCEL"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """What planning needs to know of one node.

    It is small, travels between processes, and never holds environment variables: those may be secrets.
    """

    node_rank: int
    """Rank of the node in the cluster, from 0."""
    ip: str = ""
    """Address that the other nodes reach it under."""
    hostname: str = ""
    """Name of the machine, for messages."""
    node_id: str = ""
    """The cluster backend's own identifier of the node; empty in an offline plan."""
    num_accelerators: int = 0
    """Accelerators on the node."""
    accelerator_type: AcceleratorType = AcceleratorType.NO_ACCEL
    """Family of the accelerators; ``NO_ACCEL`` when there are none."""
    accelerator_models: tuple[str, ...] = ()
    """Model of every device in local order: a node may mix models."""
    accelerator_ids: tuple[str, ...] = ()
    """What visible-devices variables call every device, in local order; empty in an offline plan."""
    cpu_slots: int = 0
    """CPU slots that the node itself asks for (``RLINF_CPU_SLOTS``); 0 leaves it to the recipe."""
    num_cpus: int = 0
    """Logical CPU cores."""
    memory_bytes: int = 0
    """Main memory."""
    python_interpreter_path: str = ""
    """Interpreter that the node's workers run by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """A labelled set of nodes with one kind of resource, whose hardware ranks count through the nodes in order."""

    label: str
    """Unique name; ``cluster`` is the default group, ``node`` the group of nodes themselves."""
    node_ranks: list[int]
    """Cluster ranks of the nodes, ascending."""
    kind: ResourceKind
    """What one hardware rank is."""
    resources_per_node: list[int]
    """Resources on each node, aligned with ``node_ranks``; 0 for a node that has none."""
    unknown: str = ""
    """Why the resources are not known offline and what to set; empty when they are known."""
    offsets: list[int] = field(init=False, repr=False, compare=False)
    """First hardware rank of each node, aligned with ``node_ranks``."""
    _total: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.unknown and len(self.node_ranks) != len(self.resources_per_node):
            raise PlacementError(
                f"Node group '{self.label}' has {len(self.node_ranks)} nodes but resources for "
                f"{len(self.resources_per_node)}; give one number for each node."
            )
        ends = list(accumulate(self.resources_per_node, initial=0))
        object.__setattr__(self, "offsets", ends[:-1])
        object.__setattr__(self, "_total", ends[-1])

    @property
    def is_known(self) -> bool:
        """Whether the resources of each node are known."""
        return not self.unknown

    @property
    def kind_name(self) -> str:
        """The kind of resource in words, singular."""
        return _KIND_NAMES[self.kind]

    @property
    def num_hardware_ranks(self) -> int:
        """Resources in the group.

        Raises:
            PlacementError: The plan was made offline and the nodes' resources are not known.
        """
        self._require_known()
        return self._total

    def locate(self, hardware_rank: int) -> tuple[int, int]:
        """Return where a hardware rank is.

        Args:
            hardware_rank: Rank in the group, from 0.

        Returns:
            The node's cluster rank, and the resource's index on that node.

        Raises:
            PlacementError: The group has no such rank, or its resources are not known.
        """
        if not 0 <= hardware_rank < self.num_hardware_ranks:
            raise PlacementError(f"Hardware rank {hardware_rank} does not exist: {self.describe()}.")
        # bisect_right skips nodes without resources: they share their offset with the node after them.
        position = bisect_right(self.offsets, hardware_rank) - 1
        return self.node_ranks[position], hardware_rank - self.offsets[position]

    def describe(self) -> str:
        """Return the group's size in words, for messages."""
        if self.unknown:
            return f"node group '{self.label}' is not known offline ({self.unknown})"
        if self._total == 0:
            return f"node group '{self.label}' has no {self.kind_name}s"
        last = self._total - 1
        plural = "" if self._total == 1 else "s"
        return f"node group '{self.label}' has {self._total} {self.kind_name}{plural}, ranks 0-{last}"

    def _require_known(self) -> None:
        if self.unknown:
            raise PlacementError(f"The resources of node group '{self.label}' are not known offline: {self.unknown}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The seat of one process.

    Whether accelerators are isolated changes what a process *sees*, never which device is *its own*:
    ``local_accelerator_rank`` is always the number of its (first) device on the node. The process
    itself opens ``Worker.device``, whose index counts among the visible ones.
    """

    rank: int
    """Rank of the process in its worker group, from 0."""
    node_group_label: str
    """Node group whose hardware ranks were used."""
    cluster_node_rank: int
    """Rank of the node in the cluster."""
    placement_node_rank: int
    """Rank of the node among those that the worker group uses, in order of their first process."""
    local_rank: int
    """Rank of the process among those of its worker group on the same node."""
    local_world_size: int
    """Processes of the worker group on this node."""
    local_accelerator_rank: int
    """Number on the node of the process's own (first) accelerator; -1 if it owns none."""
    accelerator_type: AcceleratorType
    """Family of the accelerators that it sees; ``NO_ACCEL`` if it sees none."""
    visible_accelerators: list[str]
    """Numbers of the accelerators it sees, counted from 0 among those of the node that the run may use.

    Its own when isolated, all of the node's otherwise. A process placed on something other than accelerators (a node, a
    robot) owns none, and is not limited in what it sees.
    """
    isolate_accelerator: bool
    """Whether it sees only its own accelerators."""
    local_hardware_ranks: list[int]
    """Indices on the node of the resources it holds; empty when its resource is the node itself."""


class PlacementCluster(Protocol):
    """What strategies need of a cluster, running or planned."""

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        ...

    def get_node_group(self, label: str | None = None) -> NodeGroup:
        """Return the group with this label, the default group for None; unknown labels raise ``PlacementError``."""
        ...

    def get_node_info(self, node_rank: int) -> NodeInfo:
        """Return the description of one node."""
        ...
