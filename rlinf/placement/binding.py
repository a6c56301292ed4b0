"""From hardware ranks to seats: which node each process is on, and how processes count on their node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlinf.errors import PlacementError
from rlinf.placement.ranks import format_ranks
from rlinf.placement.records import AcceleratorType, NodeGroup, NodeInfo, Placement


@dataclass(frozen=True, slots=True)
class Seat:
    """Where one process sits, before processes are counted node by node."""

    cluster_node_rank: int
    local_hardware_ranks: list[int]
    on_accelerators: bool


def hardware_seats(processes: Sequence[Sequence[int]], group: NodeGroup, *, where: str) -> list[Seat]:
    """Find the node of every process.

    Args:
        processes: For each process rank, its hardware ranks in the group.
        group: The node group.
        where: What error messages name: a config path or a strategy.

    Returns:
        One seat for each process.

    Raises:
        PlacementError: A rank does not exist, or a process would span nodes.
    """
    seats = []
    total = group.num_hardware_ranks
    for process, ranks in enumerate(processes):
        for rank in ranks:
            if not 0 <= rank < total:
                raise PlacementError(
                    f"{where}: process {process} asks for {group.kind_name} {rank}, but {group.describe()}."
                )
        places = [group.locate(rank) for rank in ranks]
        nodes = {node for node, _ in places}
        if len(nodes) > 1:
            raise PlacementError(
                f"{where}: process {process} would hold the {group.kind_name}s {format_ranks(ranks)}, which lie on "
                f"nodes {format_ranks(nodes)}; one process never spans nodes. Resources of the group's nodes "
                f"{format_ranks(group.node_ranks)}: {_counts(group)}."
            )
        local = [] if group.kind == "node" else [index for _, index in places]
        seats.append(Seat(places[0][0], local, group.kind == "accelerator"))
    return seats


def _counts(group: NodeGroup) -> str:
    shown = [str(count) for count in group.resources_per_node[:8]]
    return ", ".join(shown) + (", ..." if len(group.resources_per_node) > len(shown) else "")


def number_seats(
    seats: Sequence[Seat],
    *,
    label: str,
    get_node_info: Callable[[int], NodeInfo],
    isolate_accelerator: bool,
) -> list[Placement]:
    """Count the processes on each node and say which accelerators each one sees.

    Args:
        seats: One for each process, by rank.
        label: The node group's label.
        get_node_info: Describes a node by its cluster rank.
        isolate_accelerator: Whether processes on accelerators see only their own.

    Returns:
        One placement for each process, by rank.
    """
    world_sizes = Counter(seat.cluster_node_rank for seat in seats)
    node_order: dict[int, int] = {}
    node_devices: dict[int, tuple[list[str], AcceleratorType]] = {}
    taken: Counter[int] = Counter()
    placements = []
    for rank, seat in enumerate(seats):
        node = seat.cluster_node_rank
        if node not in node_order:
            node_order[node] = len(node_order)
            info = get_node_info(node)
            node_devices[node] = ([str(index) for index in range(info.num_accelerators)], info.accelerator_type)
        devices, accelerator_type = node_devices[node]
        own = seat.local_hardware_ranks if seat.on_accelerators else []
        visible = [str(index) for index in own] if own and isolate_accelerator else list(devices)
        placements.append(
            Placement(
                rank=rank,
                node_group_label=label,
                cluster_node_rank=node,
                placement_node_rank=node_order[node],
                local_rank=taken[node],
                local_world_size=world_sizes[node],
                local_accelerator_rank=own[0] if own else -1,
                accelerator_type=accelerator_type if visible else AcceleratorType.NO_ACCEL,
                visible_accelerators=visible,
                isolate_accelerator=isolate_accelerator,
                local_hardware_ranks=list(seat.local_hardware_ranks),
            )
        )
        taken[node] += 1
    return placements
