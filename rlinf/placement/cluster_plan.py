"""An offline cluster, made from configuration alone: what ``validate`` and ``rlinf plan`` place components on."""

from __future__ import annotations

from collections.abc import Sequence

from rlinf.errors import PlacementError
from rlinf.placement.groups import NodeGroupSpec, build_node_groups, find_node_group
from rlinf.placement.ranks import format_ranks, parse_node_ranks
from rlinf.placement.records import (
    DEFAULT_GROUP_LABEL,
    NODE_GROUP_LABEL,
    AcceleratorType,
    NodeGroup,
    NodeInfo,
    ResourceKind,
)

# Enough to resolve any explicit rank when the recipe leaves the number of nodes open.
_ANY_NUMBER_OF_NODES = 1_000_000

_SET_NUM_NODES = "set cluster.num_nodes to the number of nodes."
_SET_ACCELERATORS = (
    "set accelerators_per_node in cluster.node_groups, or pass --accelerators-per-node N to `rlinf plan` (0 for none)."
)


class ClusterPlan:
    """A cluster that exists on paper; it satisfies ``PlacementCluster``.

    What the configuration does not say stays unknown: explicit ranks are still checked, and only what depends on the
    unknown (the size of ``all``, which node a rank is on) raises, with what to set.

    Args:
        num_nodes: ``cluster.num_nodes``; None or 0 means that it is decided at start, hence unknown here.
        accelerators_per_node: Accelerators on each node that no group declares: one number for all, one for each
            node, or None when not known.
        node_groups: ``cluster.node_groups``; ``accelerators_per_node`` of a group holds for its nodes.
        cpu_slots_per_node: ``cluster.cpu_slots_per_node``.
        accelerator_type: Family to assume for the accelerators.

    Raises:
        PlacementError: The node groups contradict each other or the number of nodes.
    """

    def __init__(
        self,
        num_nodes: int | None = None,
        accelerators_per_node: int | Sequence[int] | None = None,
        node_groups: Sequence[NodeGroupSpec] = (),
        cpu_slots_per_node: int | None = None,
        *,
        accelerator_type: AcceleratorType = AcceleratorType.NV_GPU,
    ) -> None:
        self._num_nodes = num_nodes or None
        declared = _declared_accelerators(node_groups, self._num_nodes)
        size = self._num_nodes or _referenced_nodes(node_groups)
        given = _given_accelerators(accelerators_per_node, size, is_size_known=self._num_nodes is not None)
        counts = {rank: declared.get(rank, given.get(rank)) for rank in range(size)}
        self._nodes = [
            NodeInfo(
                node_rank=rank,
                num_accelerators=count or 0,
                accelerator_type=accelerator_type if count else AcceleratorType.NO_ACCEL,
            )
            for rank, count in counts.items()
        ]
        missing = {rank for rank, count in counts.items() if count is None}
        self._groups = build_node_groups(
            self._nodes, node_groups, cpu_slots_per_node, unknown_nodes=missing, unknown=_SET_ACCELERATORS
        )
        if self._num_nodes is None:
            self._forget_open_groups(node_groups)

    @property
    def num_nodes(self) -> int:
        """Number of nodes.

        Raises:
            PlacementError: The recipe leaves it to the start of the run.
        """
        if self._num_nodes is None:
            raise PlacementError(f"The number of nodes is not known offline: {_SET_NUM_NODES}")
        return self._num_nodes

    @property
    def nodes(self) -> list[NodeInfo]:
        """The nodes that the recipe names, by rank: all of them when the number of nodes is known."""
        return list(self._nodes)

    def get_node_group(self, label: str | None = None) -> NodeGroup:
        """Return a node group.

        Args:
            label: Its label; None is the default group over all nodes.

        Returns:
            The group; ``is_known`` says whether its resources are.

        Raises:
            PlacementError: There is no such group.
        """
        return find_node_group(self._groups, label)

    def get_node_info(self, node_rank: int) -> NodeInfo:
        """Return the description of one node.

        Args:
            node_rank: Its cluster rank.

        Returns:
            What the configuration says of it.

        Raises:
            PlacementError: There is no such node.
        """
        if not 0 <= node_rank < len(self._nodes):
            raise PlacementError(
                f"Node {node_rank} does not exist: the plan has {len(self._nodes)} node(s); {_SET_NUM_NODES}"
            )
        return self._nodes[node_rank]

    def _forget_open_groups(self, node_groups: Sequence[NodeGroupSpec]) -> None:
        """Without a number of nodes, groups over all nodes have an unknown size."""
        # Robots are counted by the recipe, not by the nodes.
        open_labels = [spec.label for spec in node_groups if _is_all(spec.node_ranks) and spec.hardware is None]
        for label in (DEFAULT_GROUP_LABEL, NODE_GROUP_LABEL, *open_labels):
            kind: ResourceKind = "node" if label == NODE_GROUP_LABEL else "accelerator"
            self._groups[label] = NodeGroup(
                label=label, node_ranks=[], kind=kind, resources_per_node=[], unknown=_SET_NUM_NODES
            )


def _is_all(node_ranks: str | int) -> bool:
    return isinstance(node_ranks, str) and node_ranks.strip() == "all"


def _referenced_nodes(node_groups: Sequence[NodeGroupSpec]) -> int:
    """Return how many nodes the recipe names at least."""
    highest = -1
    for index, spec in enumerate(node_groups):
        if not _is_all(spec.node_ranks):
            path = f"cluster.node_groups[{index}].node_ranks"
            highest = max(highest, *parse_node_ranks(spec.node_ranks, _ANY_NUMBER_OF_NODES, path=path))
        for config in spec.hardware.configs if spec.hardware is not None else ():
            rank = config.get("node_rank")
            highest = max(highest, rank if isinstance(rank, int) else -1)
    return highest + 1


def _declared_accelerators(node_groups: Sequence[NodeGroupSpec], num_nodes: int | None) -> dict[int, int]:
    """Return the accelerators that groups declare for their nodes."""
    declared: dict[int, int] = {}
    for index, spec in enumerate(node_groups):
        if spec.accelerators_per_node is None or (num_nodes is None and _is_all(spec.node_ranks)):
            continue
        path = f"cluster.node_groups[{index}]"
        ranks = parse_node_ranks(spec.node_ranks, num_nodes or _ANY_NUMBER_OF_NODES, path=f"{path}.node_ranks")
        clash = [rank for rank in ranks if declared.get(rank, spec.accelerators_per_node) != spec.accelerators_per_node]
        if clash:
            raise PlacementError(
                f"{path}.accelerators_per_node is {spec.accelerators_per_node}, but another group says "
                f"{declared[clash[0]]} for node(s) {format_ranks(clash)}; make them agree."
            )
        declared.update(dict.fromkeys(ranks, spec.accelerators_per_node))
    return declared


def _given_accelerators(value: int | Sequence[int] | None, size: int, *, is_size_known: bool) -> dict[int, int]:
    if value is None:
        return {}
    if min([value] if isinstance(value, int) else value, default=0) < 0:
        raise PlacementError(f"accelerators_per_node is {value}; it must be 0 or more.")
    if isinstance(value, int):
        return dict.fromkeys(range(size), value)
    if is_size_known and len(value) != size:
        raise PlacementError(f"accelerators_per_node lists {len(value)} nodes, but cluster.num_nodes is {size}.")
    return dict(enumerate(value))
