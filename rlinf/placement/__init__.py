"""Placement: strings and node descriptions in, one ``Placement`` for each process out.

It owns the placement grammar, node groups and hardware ranks, the strategies, the offline plan and its diagram.
Everything here is pure and fast: it may import ``rlinf.errors``, ``rlinf.registry`` and ``rlinf.utils`` only, and
neither Ray nor torch; it takes plain values, not configuration classes. A new way to place processes is a subclass of
``PlacementStrategy``; a new kind of resource starts at ``ResourceKind`` in ``records.py`` and ``build_node_groups`` in
``groups.py``.
"""

from rlinf.placement.cluster_plan import ClusterPlan
from rlinf.placement.component import (
    ComponentPlacement,
    HybridComponentPlacement,
    ModelParallelComponentPlacement,
    PlacementMode,
)
from rlinf.placement.diagram import draw_plan
from rlinf.placement.grammar import Segment, assign_processes, parse_spec, plan_component
from rlinf.placement.groups import NodeGroupSpec, build_node_groups, find_node_group
from rlinf.placement.ranks import format_ranks, parse_node_ranks
from rlinf.placement.records import (
    DEFAULT_GROUP_LABEL,
    NODE_GROUP_LABEL,
    AcceleratorType,
    NodeGroup,
    NodeInfo,
    Placement,
    PlacementCluster,
    ResourceKind,
)
from rlinf.placement.strategies import (
    FlexiblePlacementStrategy,
    NodePlacementStrategy,
    PackedPlacementStrategy,
    PlacementStrategy,
)

__all__ = [
    "DEFAULT_GROUP_LABEL",
    "NODE_GROUP_LABEL",
    "AcceleratorType",
    "ClusterPlan",
    "ComponentPlacement",
    "FlexiblePlacementStrategy",
    "HybridComponentPlacement",
    "ModelParallelComponentPlacement",
    "NodeGroup",
    "NodeGroupSpec",
    "NodeInfo",
    "NodePlacementStrategy",
    "PackedPlacementStrategy",
    "Placement",
    "PlacementCluster",
    "PlacementMode",
    "PlacementStrategy",
    "ResourceKind",
    "Segment",
    "assign_processes",
    "build_node_groups",
    "draw_plan",
    "find_node_group",
    "format_ranks",
    "parse_node_ranks",
    "parse_spec",
    "plan_component",
]
