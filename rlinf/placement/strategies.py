"""Placement strategies: which hardware ranks each process of a worker group gets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from rlinf.errors import PlacementError
from rlinf.placement.binding import Seat, hardware_seats, number_seats
from rlinf.placement.records import NODE_GROUP_LABEL, Placement, PlacementCluster


class PlacementStrategy(ABC):
    """Base of all strategies: pure, picklable, and independent of the cluster until ``get_placement``."""

    @abstractmethod
    def get_placement(self, cluster: PlacementCluster, isolate_accelerator: bool = True) -> list[Placement]:
        """Place every process on the cluster.

        Args:
            cluster: The cluster, running or planned.
            isolate_accelerator: Whether a process sees only its own accelerators (see ``Placement``).

        Returns:
            One placement for each process, by rank.

        Raises:
            PlacementError: The cluster cannot satisfy the strategy.
        """


class PackedPlacementStrategy(PlacementStrategy):
    """Packs processes onto consecutive hardware ranks, each holding ``num_hardware_per_process`` of them.

    With a stride, the ranks of one process lie ``stride`` apart: stride 2 and 2 ranks a process over 0-7 give
    ``[0, 2] [1, 3] [4, 6] [5, 7]``.

    Args:
        start_hardware_rank: First hardware rank in the node group.
        end_hardware_rank: Last hardware rank, inclusive.
        num_hardware_per_process: Hardware ranks that each process holds, all on one node.
        stride: Distance between the hardware ranks of one process.
        node_group: Label of the node group; None is the default group over all nodes.

    Raises:
        PlacementError: An argument is out of range, or the range is not a multiple of
            ``num_hardware_per_process * stride``.
    """

    def __init__(
        self,
        start_hardware_rank: int,
        end_hardware_rank: int,
        num_hardware_per_process: int = 1,
        stride: int = 1,
        node_group: str | None = None,
    ) -> None:
        self.start_hardware_rank = start_hardware_rank
        self.end_hardware_rank = end_hardware_rank
        self.num_hardware_per_process = num_hardware_per_process
        self.stride = stride
        self.node_group = node_group
        if start_hardware_rank < 0 or end_hardware_rank < start_hardware_rank:
            raise PlacementError(f"{self}: needs 0 <= start_hardware_rank <= end_hardware_rank.")
        if num_hardware_per_process < 1 or stride < 1:
            raise PlacementError(f"{self}: num_hardware_per_process and stride must be at least 1.")
        count = end_hardware_rank - start_hardware_rank + 1
        block = num_hardware_per_process * stride
        if count % block:
            raise PlacementError(
                f"{self}: {count} hardware ranks are not a multiple of num_hardware_per_process * stride = "
                f"{num_hardware_per_process} * {stride} = {block} ({count} % {block} = {count % block}); "
                f"end at {end_hardware_rank - count % block} or {end_hardware_rank - count % block + block}."
            )

    @property
    def hardware_ranks(self) -> list[list[int]]:
        """Hardware ranks of each process, by process rank."""
        block = self.num_hardware_per_process * self.stride
        return [
            list(range(first + offset, first + block, self.stride))
            for first in range(self.start_hardware_rank, self.end_hardware_rank + 1, block)
            for offset in range(self.stride)
        ]

    def get_placement(self, cluster: PlacementCluster, isolate_accelerator: bool = True) -> list[Placement]:
        """Place every process; see ``PlacementStrategy.get_placement``."""
        return _place_on_hardware(self, self.hardware_ranks, cluster, self.node_group, isolate_accelerator)

    def __repr__(self) -> str:
        return (
            f"PackedPlacementStrategy({self.start_hardware_rank}, {self.end_hardware_rank}, "
            f"num_hardware_per_process={self.num_hardware_per_process}, stride={self.stride}, "
            f"node_group={self.node_group!r})"
        )


class FlexiblePlacementStrategy(PlacementStrategy):
    """Gives process ``i`` exactly the hardware ranks of list ``i``; several processes may share a hardware rank.

    Args:
        hardware_ranks_list: For each process, its hardware ranks in the node group, all on one node. The order within a
            list is kept: the first accelerator is the process's own device.
        node_group_label: Label of the node group; None is the default group over all nodes.

    Raises:
        PlacementError: No process, a process without hardware ranks, or one that lists a rank twice.
    """

    def __init__(self, hardware_ranks_list: Sequence[Sequence[int]], node_group_label: str | None = None) -> None:
        self.hardware_ranks = [list(ranks) for ranks in hardware_ranks_list]
        self.node_group_label = node_group_label
        if not self.hardware_ranks:
            raise PlacementError("FlexiblePlacementStrategy: no process; give one list of hardware ranks for each.")
        for process, ranks in enumerate(self.hardware_ranks):
            if not ranks:
                raise PlacementError(
                    f"{self}: process {process} has no hardware ranks; give it at least one, or use "
                    "NodePlacementStrategy for processes that need a node only."
                )
            if len(set(ranks)) != len(ranks):
                raise PlacementError(f"{self}: process {process} lists a hardware rank twice: {ranks}; name each once.")

    def get_placement(self, cluster: PlacementCluster, isolate_accelerator: bool = True) -> list[Placement]:
        """Place every process; see ``PlacementStrategy.get_placement``."""
        return _place_on_hardware(self, self.hardware_ranks, cluster, self.node_group_label, isolate_accelerator)

    def __repr__(self) -> str:
        return f"FlexiblePlacementStrategy({_shorten(self.hardware_ranks)}, node_group_label={self.node_group_label!r})"


class NodePlacementStrategy(PlacementStrategy):
    """Puts process ``i`` on node ``node_ranks[i]``, with or without accelerators; a node may be listed many times.

    Such a process owns no accelerator, and sees all of its node's.

    Args:
        node_ranks: For each process its node: a cluster rank, or with a label the node's position in that group.
        node_group_label: Label of the node group that ``node_ranks`` count in; None counts through the cluster.

    Raises:
        PlacementError: The list is empty or holds a negative rank.
    """

    def __init__(self, node_ranks: Sequence[int], node_group_label: str | None = None) -> None:
        self.node_ranks = list(node_ranks)
        self.node_group_label = node_group_label
        if not self.node_ranks:
            raise PlacementError("NodePlacementStrategy: no process; give one node rank for each.")
        if min(self.node_ranks) < 0:
            raise PlacementError(f"{self}: node ranks count from 0; {min(self.node_ranks)} is not one.")

    def get_placement(self, cluster: PlacementCluster, isolate_accelerator: bool = True) -> list[Placement]:
        """Place every process; see ``PlacementStrategy.get_placement``."""
        label = NODE_GROUP_LABEL if self.node_group_label is None else self.node_group_label
        group = cluster.get_node_group(label)
        seats = []
        for process, position in enumerate(self.node_ranks):
            if position >= len(group.node_ranks):
                raise PlacementError(
                    f"{self}: process {process} asks for node {position}, but node group '{label}' has "
                    f"{len(group.node_ranks)} node(s), ranks 0-{len(group.node_ranks) - 1}."
                )
            seats.append(Seat(group.node_ranks[position], [], on_accelerators=False))
        return number_seats(
            seats,
            label=group.label,
            get_node_info=cluster.get_node_info,
            isolate_accelerator=isolate_accelerator,
        )

    def __repr__(self) -> str:
        return f"NodePlacementStrategy({_shorten(self.node_ranks)}, node_group_label={self.node_group_label!r})"


def _place_on_hardware(
    strategy: PlacementStrategy,
    processes: Sequence[Sequence[int]],
    cluster: PlacementCluster,
    label: str | None,
    isolate_accelerator: bool,
) -> list[Placement]:
    group = cluster.get_node_group(label)
    return number_seats(
        hardware_seats(processes, group, where=repr(strategy)),
        label=group.label,
        get_node_info=cluster.get_node_info,
        isolate_accelerator=isolate_accelerator,
    )


def _shorten(items: Sequence[object]) -> str:
    """Show a long list by its ends: messages name strategies of a thousand processes."""
    if len(items) <= 8:
        return str(list(items))
    return f"[{items[0]}, {items[1]}, ..., {items[-1]}] ({len(items)} processes)"
