"""The ``cluster`` section: nodes, what they hold, and which component runs where."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rlinf.config.schema.base import ConfigSection, NonNegativeInt, PositiveInt


@dataclass(frozen=True, kw_only=True)
class EnvConfigs(ConfigSection):
    """Process environment for some nodes of a group."""

    node_ranks: str | int
    """Cluster ranks of the nodes this applies to, inside the group's: ``"0-3,5"``, ``4`` or ``all``."""
    env_vars: list[dict[str, str | int | float | bool]] = field(default_factory=list)
    """One-key maps, for example ``[{GLOO_SOCKET_IFNAME: eth0}]``."""
    python_interpreter_path: str | None = None
    """Interpreter of the workers on these nodes; null keeps the one Ray was started with."""


@dataclass(frozen=True, kw_only=True)
class HardwareConfig(ConfigSection):
    """Hardware that cannot be detected, robots for instance: each entry of ``configs`` is one hardware rank."""

    type: str
    """Kind of hardware, for example ``Franka``."""
    configs: list[dict[str, Any]]
    """One mapping per device; each must name its ``node_rank``."""


@dataclass(frozen=True, kw_only=True)
class NodeGroupConfig(ConfigSection):
    """A labelled set of nodes with one kind of hardware rank."""

    label: str
    """Unique name; ``cluster`` and ``node`` are reserved."""
    node_ranks: str | int
    """Cluster ranks of the nodes: ``"0-3,5"``, ``4`` or ``all``."""
    env_configs: list[EnvConfigs] = field(default_factory=list)
    """Process environments; their node ranks must be disjoint and inside the group."""
    hardware: HardwareConfig | None = None
    """Declared hardware; exclusive with ``ignore_hardware``."""
    ignore_hardware: bool = False
    """Take the nodes themselves as hardware ranks even if they have accelerators."""
    accelerators_per_node: NonNegativeInt | None = None
    """Accelerators on each node: lets placement be checked offline; compared with what is found at start."""


@dataclass(frozen=True, kw_only=True)
class ComponentPlacementConfig(ConfigSection):
    """The long form of one component's placement."""

    node_group: str | None = None
    """Label of the node group; null is the default group, which holds all nodes."""
    placement: str | int
    """A placement string, for example ``"0-1:0-3,3-5"`` or ``all``."""


@dataclass(frozen=True, kw_only=True)
class ClusterConfig(ConfigSection):
    """The ``cluster`` section."""

    num_nodes: NonNegativeInt | None = None
    """Nodes to use; null or 0 takes all that are alive."""
    cpu_slots_per_node: PositiveInt | None = None
    """CPU slots that stand for hardware ranks on a node without accelerators."""
    component_placement: dict[str, str | int | ComponentPlacementConfig] = field(default_factory=dict)
    """Component (or several, joined by commas) to placement."""
    node_groups: list[NodeGroupConfig] = field(default_factory=list)
    """Labelled groups of nodes; none are needed for a uniform cluster."""
