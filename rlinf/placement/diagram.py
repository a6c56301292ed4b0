"""A plan as plain text: nodes, their resources, and which processes sit where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rlinf.placement.component import ComponentPlacement
from rlinf.placement.ranks import format_ranks
from rlinf.placement.records import NodeGroup, NodeInfo, Placement

_EMPTY = "."

# One grid of the diagram: resource kind and the label of the group that counts it.
_Grid = tuple[str, str]


@dataclass(slots=True)
class _NodeView:
    """One node's processes: for each grid and component, the ranks in each local resource."""

    node_rank: int
    num_accelerators: int
    sizes: dict[_Grid, int] = field(default_factory=dict)
    cells: dict[_Grid, dict[str, list[list[int]]]] = field(default_factory=dict)

    def bases(self) -> tuple[int, ...]:
        """The lowest rank of each component on the node: what differs between otherwise equal nodes."""
        return tuple(
            min(rank for cell in row for rank in cell) for rows in self.cells.values() for row in rows.values()
        )

    def signature(self) -> tuple[object, ...]:
        """What two nodes have in common when they may be drawn as one."""
        shape: list[object] = []
        for grid, rows in self.cells.items():
            for component, row in rows.items():
                base = min(rank for cell in row for rank in cell)
                shape.append((grid, component, tuple(tuple(rank - base for rank in cell) for cell in row)))
        return (self.num_accelerators, tuple(self.sizes.items()), tuple(shape))


@dataclass(slots=True)
class _Fold:
    """Nodes drawn as one: equal but for a constant step in each component's ranks."""

    views: list[_NodeView]
    bases: tuple[int, ...]
    step: tuple[int, ...] | None = None

    def takes(self, view: _NodeView, bases: tuple[int, ...]) -> bool:
        step = tuple(new - old for new, old in zip(bases, self.bases, strict=True))
        if self.step is not None and step != self.step:
            return False
        self.views.append(view)
        self.bases, self.step = bases, step
        return True


def draw_plan(placement: ComponentPlacement, nodes: Sequence[NodeInfo], *, width: int = 100) -> str:
    """Draw where every process of every component sits.

    Nodes that differ only by a constant step in their ranks are drawn once: ``nodes 0-63 (64)``, with ``+8 per node``.

    Args:
        placement: The components on their cluster.
        nodes: The cluster's nodes (``ClusterPlan.nodes``); idle ones are drawn too.
        width: Columns to use; a node with many resources is continued on further lines.

    Returns:
        Lines joined by newlines, plain ASCII.
    """
    lines = _draw_summary(placement, width)
    drawn = [name for name in placement.components if placement.get_node_group(name).is_known]
    if len(drawn) < len(placement.components):
        reasons = {placement.get_node_group(name).unknown for name in placement.components if name not in drawn}
        lines += ["", "Nodes are not known for every component:", *(f"  {reason}" for reason in sorted(reasons))]
    if drawn:
        views = _view_nodes(placement, drawn, nodes)
        # A node is idle only if every component is drawn.
        shown = views if len(drawn) == len(placement.components) else [view for view in views if view.cells]
        for fold in _fold(shown):
            lines += ["", *_draw_fold(fold, width)]
    return "\n".join(line.rstrip() for line in lines)


def _draw_summary(placement: ComponentPlacement, width: int) -> list[str]:
    rows = [("component", "processes", "placement", "resources")]
    for name in placement.components:
        group = placement.get_node_group(name)
        size = placement.find_world_size(name)
        where = f"{group.kind_name}s of '{group.label}'" if group.is_known else f"hardware ranks of '{group.label}'"
        rows.append((name, "?" if size is None else str(size), placement.get_spec(name), where))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    # A very long placement string would push its row out of the diagram; the grids below show it in full.
    widths[2] = min(widths[2], max(12, width - widths[0] - widths[1] - widths[3] - 6))
    return [
        f"{name:<{widths[0]}}  {size:>{widths[1]}}  {_clip(spec, widths[2]):<{widths[2]}}  {where}"
        for name, size, spec, where in rows
    ]


def _clip(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _view_nodes(placement: ComponentPlacement, components: list[str], nodes: Sequence[NodeInfo]) -> list[_NodeView]:
    views = {node.node_rank: _NodeView(node.node_rank, node.num_accelerators) for node in nodes}
    for name in components:
        group = placement.get_node_group(name)
        grid = _grid_of(group)
        sizes = dict(zip(group.node_ranks, group.resources_per_node, strict=True))
        for seat in placement.get_placement(name):
            view = views[seat.cluster_node_rank]
            view.sizes[grid] = sizes[seat.cluster_node_rank]
            rows = view.cells.setdefault(grid, {})
            row = rows.setdefault(name, [[] for _ in range(view.sizes[grid])])
            for index in _columns(seat):
                row[index].append(seat.rank)
    return list(views.values())


def _grid_of(group: NodeGroup) -> _Grid:
    # Accelerators, CPU slots and nodes are the same things in whichever group; robots belong to theirs.
    return (group.kind, group.label if group.kind == "robot" else "")


def _columns(seat: Placement) -> list[int]:
    return seat.local_hardware_ranks or [0]


def _fold(views: Sequence[_NodeView]) -> list[_Fold]:
    folds: list[_Fold] = []
    open_folds: dict[tuple[object, ...], _Fold] = {}
    for view in views:
        signature, bases = view.signature(), view.bases()
        fold = open_folds.get(signature)
        if fold is None or not fold.takes(view, bases):
            open_folds[signature] = _Fold([view], bases)
            folds.append(open_folds[signature])
    return folds


def _draw_fold(fold: _Fold, width: int) -> list[str]:
    ranks = [view.node_rank for view in fold.views]
    first = fold.views[0]
    title = f"node {ranks[0]}" if len(ranks) == 1 else f"nodes {format_ranks(ranks)} ({len(ranks)})"
    count = first.num_accelerators
    known = f": {count} accelerator{'' if count == 1 else 's'}{'' if len(ranks) == 1 else ' each'}" if count else ""
    if not first.cells:
        return [f"{title}{known}, idle"]
    lines = [f"{title}{known}"]
    steps: Iterator[int] = iter(fold.step or ())
    for grid, rows in first.cells.items():
        notes = [f"+{step} per node" if (step := next(steps, 0)) else "" for _ in rows]
        lines += _draw_grid(grid, first.sizes[grid], rows, notes, width)
    return lines


def _draw_grid(grid: _Grid, size: int, rows: dict[str, list[list[int]]], notes: list[str], width: int) -> list[str]:
    kind, label = grid
    header = {"cpu_slot": "CPU slot", "robot": f"robot ({label})"}.get(kind, kind)
    names = [header, *rows]
    heads = ["all"] if kind == "node" else [str(index) for index in range(size)]
    table = [heads, *([format_ranks(cell) or _EMPTY for cell in row] for row in rows.values())]
    name_width = max(len(name) for name in names)
    note_width = max((len(note) for note in notes), default=0)
    column_width = max(len(cell) for line in table for cell in line)
    per_line = max(1, (width - 2 - name_width - note_width - 2) // (column_width + 2))
    lines = []
    for start in range(0, len(heads), per_line):
        for name, cells, note in zip(names, table, ["", *notes], strict=True):
            text = "".join(f"  {cell:>{column_width}}" for cell in cells[start : start + per_line])
            lines.append(f"  {name:<{name_width}}{text}  {note}")
    return lines
