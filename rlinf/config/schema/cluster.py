"""The ``cluster`` section: nodes, what they hold, and which component runs where."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

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
class TracerConfig(ConfigSection):
    """``cluster.tracer``: one file that shows what every worker did and when; open it in ui.perfetto.dev."""

    enable: bool = False
    """Record method calls, messages, waits, channel operations, timers and phases of all workers."""
    path: str | None = None
    """The file; null is ``trace.json`` in the experiment's folder."""
    max_events_per_worker: PositiveInt = 100_000
    """Newest events that each process keeps, 300 to 600 bytes each."""


@dataclass(frozen=True, kw_only=True)
class ProfilingConfig(ConfigSection):
    """``cluster.profiling``: ``torch.profiler`` traces, one file per chosen worker and step, under ``profile/``."""

    enable: bool = False
    """Take the profiles."""
    steps: list[PositiveInt] = field(default_factory=lambda: [2])
    """Steps of the run to profile; the first one also shows what is done only once."""
    groups: list[Literal["actor", "rollout", "env"]] = field(default_factory=lambda: ["actor"])
    """Components whose workers are profiled."""
    ranks: list[NonNegativeInt] = field(default_factory=lambda: [0])
    """Ranks within each of these groups."""
    record_shapes: bool = False
    """Note the shapes of each operator's inputs."""
    profile_memory: bool = False
    """Note allocations."""
    with_stack: bool = False
    """Note the Python lines that call each operator; slow."""


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
    tracer: TracerConfig = field(default_factory=TracerConfig)
    """What every worker did and when, in one file."""
    profiling: ProfilingConfig = field(default_factory=ProfilingConfig)
    """Operators and kernels of chosen steps and workers."""
