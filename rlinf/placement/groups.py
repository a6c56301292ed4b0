"""Node groups: what one hardware rank is in each, from the recipe's group specifications and the nodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from rlinf.errors import PlacementError
from rlinf.placement.ranks import format_ranks, parse_node_ranks
from rlinf.placement.records import (
    DEFAULT_GROUP_LABEL,
    NODE_GROUP_LABEL,
    RESERVED_LABELS,
    NodeGroup,
    NodeInfo,
    ResourceKind,
)
from rlinf.registry import did_you_mean

_PATH = "cluster.node_groups"


class EnvConfigsSpec(Protocol):
    """The process environment of some nodes of a group; only its nodes matter here."""

    @property
    def node_ranks(self) -> str | int:
        """Cluster ranks of the nodes."""
        ...


class HardwareSpec(Protocol):
    """Declared hardware: each entry of ``configs`` is one hardware rank and names its ``node_rank``."""

    @property
    def type(self) -> str:
        """Kind of hardware."""
        ...

    @property
    def configs(self) -> Sequence[Mapping[str, Any]]:
        """One mapping for each device."""
        ...


class NodeGroupSpec(Protocol):
    """One entry of ``cluster.node_groups``."""

    @property
    def label(self) -> str:
        """Unique name."""
        ...

    @property
    def node_ranks(self) -> str | int:
        """Cluster ranks of the nodes."""
        ...

    @property
    def env_configs(self) -> Sequence[EnvConfigsSpec]:
        """Process environments, with disjoint nodes inside the group's."""
        ...

    @property
    def hardware(self) -> HardwareSpec | None:
        """Declared hardware."""
        ...

    @property
    def ignore_hardware(self) -> bool:
        """Whether the nodes themselves are the hardware ranks."""
        ...

    @property
    def accelerators_per_node(self) -> int | None:
        """Accelerators that each node must have."""
        ...


def build_node_groups(
    nodes: Sequence[NodeInfo],
    group_specs: Sequence[NodeGroupSpec] = (),
    cpu_slots_per_node: int | None = None,
    *,
    unknown_nodes: Collection[int] = (),
    unknown: str = "",
) -> dict[str, NodeGroup]:
    """Resolve the recipe's node groups, and add the default group ``cluster`` and the group ``node``.

    Hardware ranks of a group are the robots it declares, else accelerators if any of its nodes has one, else CPU slots
    if any of its nodes has some, else the nodes themselves.

    Args:
        nodes: All nodes, by rank.
        group_specs: ``cluster.node_groups``.
        cpu_slots_per_node: ``cluster.cpu_slots_per_node``: slots of a node that does not ask for a number itself.
        unknown_nodes: Ranks of nodes whose accelerators are not known, in an offline plan.
        unknown: What to set to make them known.

    Returns:
        Groups by label.

    Raises:
        PlacementError: A label is reserved or repeated, ranks lie outside the cluster or the group, declared hardware
            does not fit, or nodes differ from a declared ``accelerators_per_node``.
    """
    if [node.node_rank for node in nodes] != list(range(len(nodes))):
        raise PlacementError(
            f"Node ranks must be 0-{len(nodes) - 1} in order, not {[node.node_rank for node in nodes]}."
        )
    everything = list(range(len(nodes)))
    groups = {
        DEFAULT_GROUP_LABEL: _detect(
            DEFAULT_GROUP_LABEL, [nodes[rank] for rank in everything], cpu_slots_per_node, unknown_nodes, unknown
        ),
        NODE_GROUP_LABEL: NodeGroup(
            label=NODE_GROUP_LABEL, node_ranks=everything, kind="node", resources_per_node=[1] * len(nodes)
        ),
    }
    for index, spec in enumerate(group_specs):
        path = f"{_PATH}[{index}]"
        check_label(spec.label, groups, path)
        ranks = parse_node_ranks(spec.node_ranks, len(nodes), path=f"{path}.node_ranks")
        _check_env_configs(spec, ranks, len(nodes), path)
        members = [nodes[rank] for rank in ranks]
        _check_accelerators(spec, members, unknown_nodes, path)
        if spec.hardware is not None:
            groups[spec.label] = _declared(spec, spec.hardware, ranks, path)
        elif spec.ignore_hardware:
            groups[spec.label] = _node_kind(spec.label, ranks)
        else:
            groups[spec.label] = _detect(spec.label, members, cpu_slots_per_node, unknown_nodes, unknown)
    return groups


def find_node_group(groups: Mapping[str, NodeGroup], label: str | None) -> NodeGroup:
    """Return the group with this label.

    Args:
        groups: From ``build_node_groups``.
        label: The label; None is the default group over all nodes.

    Returns:
        The group.

    Raises:
        PlacementError: There is no such group; the message lists the labels and the closest one.
    """
    key = DEFAULT_GROUP_LABEL if label is None else label
    if key not in groups:
        labels = list(groups)
        raise PlacementError(
            f"There is no node group '{key}'.{did_you_mean(str(key), labels)} Groups: {', '.join(labels)}; "
            f"add one under {_PATH}."
        )
    return groups[key]


def check_label(label: str, taken: Collection[str], path: str) -> None:
    """Check that a group's label is free.

    Args:
        label: The new label.
        taken: Labels in use.
        path: Config path of the group.

    Raises:
        PlacementError: It is empty, reserved or repeated.
    """
    if not label:
        raise PlacementError(f"{path}.label is empty; give the group a name.")
    if label in RESERVED_LABELS:
        raise PlacementError(
            f"{path}.label: '{label}' is reserved ({', '.join(RESERVED_LABELS)}); choose another name."
        )
    if label in taken:
        raise PlacementError(f"{path}.label: '{label}' is the label of another group; labels must be unique.")


def _node_kind(label: str, ranks: list[int]) -> NodeGroup:
    return NodeGroup(label=label, node_ranks=ranks, kind="node", resources_per_node=[1] * len(ranks))


def _detect(
    label: str,
    members: Sequence[NodeInfo],
    cpu_slots_per_node: int | None,
    unknown_nodes: Collection[int],
    unknown: str,
) -> NodeGroup:
    ranks = [node.node_rank for node in members]
    if not unknown_nodes or set(ranks).isdisjoint(unknown_nodes):
        accelerators = [node.num_accelerators for node in members]
        slots = [node.cpu_slots or cpu_slots_per_node or 0 for node in members]
        if any(accelerators):
            return _counted(label, ranks, "accelerator", accelerators)
        if any(slots):
            return _counted(label, ranks, "cpu_slot", slots)
        return _node_kind(label, ranks)
    return NodeGroup(label=label, node_ranks=ranks, kind="accelerator", resources_per_node=[], unknown=unknown)


def _counted(label: str, ranks: list[int], kind: ResourceKind, counts: list[int]) -> NodeGroup:
    return NodeGroup(label=label, node_ranks=ranks, kind=kind, resources_per_node=counts)


def _declared(spec: NodeGroupSpec, hardware: HardwareSpec, ranks: list[int], path: str) -> NodeGroup:
    if spec.ignore_hardware:
        raise PlacementError(f"{path}: 'hardware' and 'ignore_hardware: true' exclude each other; keep one of them.")
    if not hardware.configs:
        raise PlacementError(f"{path}.hardware.configs is empty; list each {hardware.type} with its node_rank.")
    counts = dict.fromkeys(ranks, 0)
    for index, config in enumerate(hardware.configs):
        where = f"{path}.hardware.configs[{index}].node_rank"
        rank = config.get("node_rank")
        if isinstance(rank, bool) or not isinstance(rank, int):
            received = "is missing" if rank is None else f"is {rank!r}"
            raise PlacementError(f"{where} {received}; name the node (one of {format_ranks(ranks)}) this is wired to.")
        if rank not in counts:
            raise PlacementError(
                f"{where}: node {rank} is not in the group's nodes {format_ranks(ranks)}. Choose one of these."
            )
        counts[rank] += 1
    return _counted(spec.label, ranks, "robot", list(counts.values()))


def _check_env_configs(spec: NodeGroupSpec, ranks: list[int], num_nodes: int, path: str) -> None:
    owners: dict[int, int] = {}
    for index, env_config in enumerate(spec.env_configs):
        where = f"{path}.env_configs[{index}].node_ranks"
        # Here `all` means all nodes of the group.
        is_all = isinstance(env_config.node_ranks, str) and env_config.node_ranks.strip() == "all"
        chosen = ranks if is_all else parse_node_ranks(env_config.node_ranks, num_nodes, path=where)
        outside = set(chosen) - set(ranks)
        if outside:
            raise PlacementError(
                f"{where}: node(s) {format_ranks(outside)} are not in the group's nodes {format_ranks(ranks)}."
            )
        for rank in chosen:
            if rank in owners:
                raise PlacementError(
                    f"{where}: node {rank} is already in env_configs[{owners[rank]}]; node ranks must be disjoint."
                )
            owners[rank] = index


def _check_accelerators(
    spec: NodeGroupSpec, members: Sequence[NodeInfo], unknown_nodes: Collection[int], path: str
) -> None:
    if spec.accelerators_per_node is None:
        return
    different = [
        node
        for node in members
        if node.node_rank not in unknown_nodes and node.num_accelerators != spec.accelerators_per_node
    ]
    if different:
        found = ", ".join(f"node {node.node_rank} has {node.num_accelerators}" for node in different[:8])
        raise PlacementError(
            f"{path}.accelerators_per_node is {spec.accelerators_per_node}, but {found}"
            f"{', ...' if len(different) > 8 else ''}; correct the number or the group's node_ranks."
        )
