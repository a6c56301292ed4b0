"""Which component runs where: ``cluster.component_placement`` resolved against a cluster, running or planned."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from rlinf.errors import PlacementError
from rlinf.placement.binding import hardware_seats
from rlinf.placement.grammar import DEFAULT_PATH, Segment, assign_processes, parse_spec
from rlinf.placement.records import NodeGroup, Placement, PlacementCluster
from rlinf.placement.rules import count_open_processes, find_rules, split_key, split_value
from rlinf.placement.strategies import FlexiblePlacementStrategy, NodePlacementStrategy, PlacementStrategy
from rlinf.registry import did_you_mean


class PlacementMode(Enum):
    """How the components of a run share the hardware."""

    COLLOCATED = "collocated"
    """Actor and rollout hold the same devices and take turns."""
    DISAGGREGATED = "disaggregated"
    """Actor and rollout hold different devices and run at the same time."""
    HYBRID = "hybrid"
    """Any mix."""
    AUTO = "auto"
    """A published name for elastic placement, which is not offered: no placement has this mode."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """One component's placement, parsed; ``processes`` is None while the cluster does not say the size of ``all``."""

    path: str
    spec: str | int
    group: NodeGroup
    segments: list[Segment]
    processes: list[list[int]] | None
    world_size: int | None


class ComponentPlacement:
    """The placement of every component of a recipe.

    All rules are parsed and checked here, so that every mistake is reported at once and before anything starts.

    Args:
        cfg: A recipe, or its ``cluster`` section: anything with ``cluster.component_placement`` or
            ``component_placement``, a mapping from components (several joined by commas share a rule) to a placement
            string, a rank, or something with ``placement`` and optionally ``node_group``.
        cluster: The cluster, running (``Cluster``) or planned (``ClusterPlan``).
        config: Published name of ``cfg``.

    Raises:
        PlacementError: One line for each rule that is malformed or does not fit the cluster.
        TypeError: The recipe or the cluster is missing.
    """

    def __init__(self, cfg: Any = None, cluster: PlacementCluster | None = None, *, config: Any = None) -> None:
        if cluster is None or (cfg is None) == (config is None):
            raise TypeError(f"{type(self).__name__}(cfg, cluster): give a recipe, also as config=, and the cluster.")
        cfg = config if cfg is None else cfg
        self._cluster = cluster
        self._rules: dict[str, _Rule] = {}
        owners: dict[str, str] = {}
        problems: list[str] = []
        for key, value in find_rules(cfg).items():
            try:
                rule = self._parse_rule(str(key), value)
                for component in split_key(str(key)):
                    if component in owners:
                        raise PlacementError(
                            f"{DEFAULT_PATH}.{key}: component '{component}' is already placed by "
                            f"'{owners[component]}'; name each component once."
                        )
                    owners[component] = str(key)
                    self._rules[component] = rule
            except PlacementError as error:
                problems.append(str(error))
        if problems:
            raise PlacementError("\n".join(problems))

    @property
    def components(self) -> list[str]:
        """Names of the placed components, in the recipe's order."""
        return list(self._rules)

    @property
    def placement_mode(self) -> PlacementMode:
        """How components share the hardware."""
        return PlacementMode.HYBRID

    @property
    def cluster(self) -> PlacementCluster:
        """The cluster that the components are placed on."""
        return self._cluster

    def __contains__(self, component: object) -> bool:
        return component in self._rules

    def get_strategy(self, component: str) -> PlacementStrategy:
        """Return the strategy that launches a component.

        Args:
            component: Its name, for example ``"actor"``.

        Returns:
            A strategy whose placements follow the component's rule.

        Raises:
            PlacementError: The recipe does not place it, or its ``all`` cannot be counted offline.
        """
        rule = self._rule(component)
        processes = self.get_hardware_ranks(component)
        if rule.group.kind == "node":
            return NodePlacementStrategy([ranks[0] for ranks in processes], rule.group.label)
        return FlexiblePlacementStrategy(processes, rule.group.label)

    def get_hardware_ranks(self, component: str) -> list[list[int]]:
        """Return the hardware ranks, in its node group, of each of a component's processes.

        Args:
            component: Its name.

        Returns:
            One ascending list for each process, by rank.

        Raises:
            PlacementError: The recipe does not place it, or its ``all`` cannot be counted offline.
        """
        rule = self._rule(component)
        if rule.processes is None:
            return assign_processes(rule.segments, rule.group, path=rule.path)
        return [list(ranks) for ranks in rule.processes]

    def get_world_size(self, component: str) -> int:
        """Return how many processes a component has.

        Args:
            component: Its name.

        Returns:
            The number of processes.

        Raises:
            PlacementError: The recipe does not place it, or its ``all`` cannot be counted offline.
        """
        known = self.find_world_size(component)
        return len(self.get_hardware_ranks(component)) if known is None else known

    def find_world_size(self, component: str) -> int | None:
        """Return how many processes a component has, or None when that is not known before the run starts.

        Args:
            component: Its name.

        Returns:
            The number of processes; None for ``all`` in a group whose size the recipe does not say.

        Raises:
            PlacementError: The recipe does not place it.
        """
        return self._rule(component).world_size

    def find_process_sizes(self, component: str) -> list[int] | None:
        """Return how many hardware ranks each of a component's processes has, or None when that is not known yet.

        Args:
            component: Its name.

        Returns:
            Numbers by process rank; None for ``all`` in a group whose size the recipe does not say.

        Raises:
            PlacementError: The recipe does not place it.
        """
        processes = self._rule(component).processes
        return None if processes is None else [len(ranks) for ranks in processes]

    def get_node_group(self, component: str) -> NodeGroup:
        """Return the node group whose hardware ranks a component's rule uses.

        Args:
            component: Its name.

        Returns:
            The group.

        Raises:
            PlacementError: The recipe does not place it.
        """
        return self._rule(component).group

    def get_spec(self, component: str) -> str:
        """Return a component's placement string as the recipe has it.

        Args:
            component: Its name.

        Returns:
            The string.

        Raises:
            PlacementError: The recipe does not place it.
        """
        return str(self._rule(component).spec)

    def get_placement(self, component: str, isolate_accelerator: bool = True) -> list[Placement]:
        """Return the seats of a component's processes.

        Args:
            component: Its name.
            isolate_accelerator: Whether a process sees only its own accelerators.

        Returns:
            One placement for each process, by rank.

        Raises:
            PlacementError: The recipe does not place it, or the nodes are not known offline.
        """
        return self.get_strategy(component).get_placement(self._cluster, isolate_accelerator)

    def _rule(self, component: str) -> _Rule:
        if component not in self._rules:
            raise PlacementError(
                f"{DEFAULT_PATH}: component '{component}' is not placed."
                f"{did_you_mean(component, self.components)} Placed: {', '.join(self.components) or 'none'}; "
                f"add '{component}: <placement>'."
            )
        return self._rules[component]

    def _parse_rule(self, key: str, value: object) -> _Rule:
        path = f"{DEFAULT_PATH}.{key}"
        spec, label, spec_path = split_value(value, path)
        try:
            group = self._cluster.get_node_group(label)
        except PlacementError as error:
            raise PlacementError(f"{path}.node_group: {error}") from error
        segments = parse_spec(spec, path=spec_path)
        if not group.is_known and any(segment.resources is None for segment in segments):
            return _Rule(spec_path, spec, group, segments, None, count_open_processes(segments, spec, spec_path))
        processes = assign_processes(segments, group, path=spec_path)
        if group.is_known:
            hardware_seats(processes, group, where=spec_path)
        return _Rule(spec_path, spec, group, segments, processes, len(processes))


class HybridComponentPlacement(ComponentPlacement):
    """Embodied runs: every component anywhere, in any mix of shared and separate devices."""


class ModelParallelComponentPlacement(ComponentPlacement):
    """Reasoning runs: actor and rollout either share all their devices or none.

    Args:
        cfg: As for ``ComponentPlacement``; it must place ``actor`` and ``rollout``.
        cluster: The cluster, running or planned.

    Raises:
        PlacementError: A rule is malformed, ``actor`` or ``rollout`` is missing, or their devices overlap in part.
    """

    def __init__(self, cfg: Any = None, cluster: PlacementCluster | None = None, *, config: Any = None) -> None:
        super().__init__(cfg, cluster, config=config)
        self._mode = self._find_mode()

    @property
    def placement_mode(self) -> PlacementMode:
        """COLLOCATED if actor and rollout hold the same devices, DISAGGREGATED if they share none."""
        return self._mode

    def _find_mode(self) -> PlacementMode:
        actor, rollout = self._rule("actor"), self._rule("rollout")
        if None in (actor.processes, rollout.processes) and _same_rule(actor, rollout):
            return PlacementMode.COLLOCATED
        actor_devices, rollout_devices = self._devices("actor"), self._devices("rollout")
        if actor_devices == rollout_devices:
            return PlacementMode.COLLOCATED
        shared = actor_devices & rollout_devices
        if not shared:
            return PlacementMode.DISAGGREGATED
        raise PlacementError(
            f"{actor.path} ({actor.spec}) and {rollout.path} ({rollout.spec}) share {len(shared)} of "
            f"{len(actor_devices)} and {len(rollout_devices)} resources; give them the same ones (collocated) or "
            "different ones (disaggregated)."
        )

    def _devices(self, component: str) -> set[tuple[str, int, int]]:
        """Return a component's resources under names that hold across overlapping groups."""
        rule = self._rule(component)
        ranks = {rank for held in self.get_hardware_ranks(component) for rank in held}
        if rule.group.is_known:
            return {(rule.group.kind, *rule.group.locate(rank)) for rank in ranks}
        return {(rule.group.label, -1, rank) for rank in ranks}


def _same_rule(one: _Rule, other: _Rule) -> bool:
    """Whether two rules over an uncounted group both take all of it."""
    return one.group.label == other.group.label and one.processes is None and other.processes is None
