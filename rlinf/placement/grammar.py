"""The placement grammar: ``spec = segment{,segment}``, ``segment = resources[:processes]``.

Ranges are inclusive (``a-b``); ``all`` stands for every resource of the group. A comma always starts a new segment.
In each segment one count divides the other: one process holds several resources, or several processes share one,
blockwise.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from rlinf.errors import PlacementError
from rlinf.placement.binding import Seat, hardware_seats, number_seats
from rlinf.placement.ranks import format_ranks, parse_range
from rlinf.placement.records import (
    DEFAULT_GROUP_LABEL,
    RESOURCE_KINDS,
    AcceleratorType,
    NodeGroup,
    NodeInfo,
    Placement,
    ResourceKind,
)

DEFAULT_PATH = "cluster.component_placement"

# Far above what one group can run; a typing slip such as 0:0-99999999 must not fill the memory before it is reported.
MAX_PROCESSES = 1_000_000


@dataclass(frozen=True, slots=True)
class Segment:
    """One ``resources[:processes]`` of a placement string; bounds are inclusive."""

    text: str
    """As the user wrote it."""
    resources: tuple[int, int] | None
    """First and last hardware rank; None for ``all``."""
    processes: tuple[int, int] | None
    """First and last process rank; None to continue after those before."""


def parse_spec(spec: str | int, *, path: str = DEFAULT_PATH) -> list[Segment]:
    """Split a placement string into segments, without looking at any hardware.

    Args:
        spec: The placement string, for example ``"0-1:0-3,3-5,7-10:7-14"`` or ``"all"``; an int is one hardware rank.
        path: Config path that error messages quote.

    Returns:
        The segments in order.

    Raises:
        PlacementError: The string does not follow the grammar.
    """
    if isinstance(spec, bool) or not isinstance(spec, (str, int)):
        raise PlacementError(
            f'{path}: {spec!r} is not a placement; write a string such as "0-7", "0-3:0-7" or all, or one rank.'
        )
    text = str(spec)
    return [_parse_segment(part.strip(), text, path) for part in text.split(",")]


def _parse_segment(part: str, spec: str, path: str) -> Segment:
    where = f"{path}: segment '{part}' of '{spec}'"
    resources_text, colon, processes_text = part.partition(":")
    resources_text, processes_text = resources_text.strip(), processes_text.strip()
    if not resources_text:
        raise PlacementError(f"{where} names no resources; write resources[:processes], for example 0-3 or 0-3:0-7.")
    resources = None if resources_text == "all" else _parse_bounds(resources_text, where, "resources")
    if not colon:
        return Segment(part, resources, None)
    if ":" in processes_text:
        raise PlacementError(f"{where} has more than one ':'; write resources:processes, for example 0-3:0-7.")
    if processes_text == "all":
        raise PlacementError(f"{where} uses 'all' for processes; it is allowed for resources only. Write their ranks.")
    return Segment(part, resources, _parse_bounds(processes_text, where, "processes"))


def _parse_bounds(text: str, where: str, noun: str) -> tuple[int, int]:
    bounds = parse_range(text)
    if bounds is None:
        hint = "a rank, a range a-b, or all" if noun == "resources" else "a rank or a range a-b"
        raise PlacementError(f"{where}: '{text}' is not valid for {noun}; write {hint} (ranks from 0).")
    first, last = bounds
    if last < first:
        raise PlacementError(f"{where}: the {noun} '{text}' run backwards; write {last}-{first}.")
    return bounds


def assign_processes(segments: Sequence[Segment], group: NodeGroup, *, path: str = DEFAULT_PATH) -> list[list[int]]:
    """Give every process its hardware ranks.

    In a group that is not known offline, everything that does not depend on the number of resources is still checked.

    Args:
        segments: From ``parse_spec``.
        group: The node group that the hardware ranks belong to.
        path: Config path that error messages quote.

    Returns:
        For each process rank from 0, its hardware ranks, ascending.

    Raises:
        PlacementError: The segments contradict each other or the group, or ``all`` is not known offline.
    """
    spec = ",".join(segment.text for segment in segments)
    next_resource = 0
    next_process = 0
    spans: list[tuple[int, int, int, int, Segment]] = []
    for segment in segments:
        where = f"{path}: segment '{segment.text}' of '{spec}'"
        first, last = _resource_bounds(segment, group, where)
        if first < next_resource:
            raise PlacementError(
                f"{where} starts at {group.kind_name} {first}, but the segments before it go up to "
                f"{next_resource - 1}; resources must be ascending and unique over the whole string. "
                f"To share resources between more processes, give one segment more of them, for example 0-1:0-3."
            )
        first_process, last_process = segment.processes or (next_process, next_process + last - first)
        _check_divisible(last - first + 1, last_process - first_process + 1, group, where)
        spans.append((first, last, first_process, last_process, segment))
        next_resource = last + 1
        next_process = max(next_process, last_process + 1)
    _check_contiguous(spans, spec, path)
    processes: list[list[int]] = [[] for _ in range(next_process)]
    for first, last, first_process, last_process, segment in spans:
        num_resources, num_processes = last - first + 1, last_process - first_process + 1
        held = max(1, num_resources // num_processes)
        sharing = max(1, num_processes // num_resources)
        if held > 1 and group.is_known:
            _check_nodes(first, last, held, first_process, group, f"{path}: segment '{segment.text}' of '{spec}'")
        for index in range(num_processes):
            start = first + (index // sharing) * held
            processes[first_process + index] = list(range(start, start + held))
    return processes


def _resource_bounds(segment: Segment, group: NodeGroup, where: str) -> tuple[int, int]:
    if segment.resources is None:
        total = group.num_hardware_ranks if group.is_known else None
        if total is None:
            raise PlacementError(f"{where} cannot be counted offline: {group.unknown}")
        if total == 0:
            raise PlacementError(f"{where} finds nothing to run on: {group.describe()}.")
        return 0, total - 1
    first, last = segment.resources
    if group.is_known and last >= group.num_hardware_ranks:
        raise PlacementError(
            f"{where} asks for {group.kind_name} {last}, but {group.describe()}. Lower the range, use another node "
            f"group or add nodes (cluster.num_nodes){_slots_hint(group)}."
        )
    return first, last


def _slots_hint(group: NodeGroup) -> str:
    if group.kind in {"accelerator", "robot"}:
        return ""
    return " or, on nodes without accelerators, raise cluster.cpu_slots_per_node"


def _check_divisible(num_resources: int, num_processes: int, group: NodeGroup, where: str) -> None:
    if num_processes > MAX_PROCESSES or num_resources > MAX_PROCESSES:
        raise PlacementError(
            f"{where} asks for {num_processes} processes on {num_resources} {group.kind_name}s; "
            f"at most {MAX_PROCESSES} of each are supported."
        )
    larger, smaller = max(num_resources, num_processes), min(num_resources, num_processes)
    if larger % smaller:
        raise PlacementError(
            f"{where} puts {num_processes} processes on {num_resources} {group.kind_name}s, and {larger} % {smaller} "
            f"= {larger % smaller}; one count must divide the other, for example {smaller} with "
            f"{larger - larger % smaller}."
        )


def _check_contiguous(spans: Sequence[tuple[int, int, int, int, Segment]], spec: str, path: str) -> None:
    expected = 0
    for _, _, first, last, segment in sorted(spans, key=lambda span: span[2]):
        where = f"{path}: segment '{segment.text}' of '{spec}'"
        if first > expected:
            missing = str(expected) if first == expected + 1 else f"{expected}-{first - 1}"
            raise PlacementError(
                f"{where} holds processes {first}-{last}, but no segment holds process {missing}; "
                f"process ranks must be contiguous from 0. It would be valid with {expected}-{expected + last - first}."
            )
        if first < expected:
            raise PlacementError(
                f"{where} holds process {first}, which another segment holds already; each process rank may appear "
                f"once. It would be valid with {expected}-{expected + last - first}."
            )
        expected = last + 1


def _check_nodes(first: int, last: int, held: int, first_process: int, group: NodeGroup, where: str) -> None:
    for start in range(first, last + 1, held):
        position = bisect_right(group.offsets, start) - 1
        node_end = group.offsets[position] + group.resources_per_node[position]
        if start + held > node_end:
            process = first_process + (start - first) // held
            nodes = [group.locate(rank)[0] for rank in range(start, start + held)]
            raise PlacementError(
                f"{where} gives process {process} the {group.kind_name}s {start}-{start + held - 1}, which lie on "
                f"nodes {format_ranks(nodes)}; one process never spans nodes. Node {nodes[0]} ends at "
                f"{group.kind_name} {node_end - 1}: start a new segment at {node_end}, or give each process fewer."
            )


def plan_component(
    spec: str | int,
    resources_per_node: Sequence[int],
    kind: ResourceKind = "accelerator",
    *,
    path: str = DEFAULT_PATH,
) -> list[Placement]:
    """Plan one component from its placement string alone: no cluster, no config, no side effects.

    Args:
        spec: The placement string.
        resources_per_node: Resources on each node, by node rank.
        kind: What a resource is. With ``"node"``, or with the default and zeros everywhere, ranks are nodes.
        path: Config path that error messages quote.

    Returns:
        One placement for each process, by rank, with isolated accelerators.

    Raises:
        PlacementError: The string breaks a rule of the grammar or does not fit the resources.
    """
    if kind not in RESOURCE_KINDS:
        raise PlacementError(f"{path}: '{kind}' is not a kind of resource; choose one of {', '.join(RESOURCE_KINDS)}.")
    counts = list(resources_per_node)
    if any(isinstance(count, bool) or not isinstance(count, int) or count < 0 for count in counts):
        raise PlacementError(f"{path}: resources_per_node must hold one count >= 0 for each node, not {counts}.")
    if kind == "node" or (kind == "accelerator" and not any(counts)):
        kind, counts = "node", [1] * len(counts)
    group = NodeGroup(
        label=DEFAULT_GROUP_LABEL, node_ranks=list(range(len(counts))), kind=kind, resources_per_node=counts
    )
    processes = assign_processes(parse_spec(spec, path=path), group, path=path)
    seats: list[Seat] = hardware_seats(processes, group, where=path)
    has_accelerators = kind == "accelerator"
    nodes = [
        NodeInfo(
            node_rank=rank,
            num_accelerators=count if has_accelerators else 0,
            accelerator_type=AcceleratorType.NV_GPU if has_accelerators and count else AcceleratorType.NO_ACCEL,
        )
        for rank, count in enumerate(counts)
    ]
    return number_seats(seats, label=group.label, get_node_info=nodes.__getitem__, isolate_accelerator=True)
