"""``validate_cfg``: parsing, then every rule about how the sections fit together. Offline: starts nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlinf.config.build import build_config
from rlinf.config.checks import (
    algorithm,
    asynchronous,
    batches,
    collection,
    flow,
    hardware,
    inference,
    intervention,
    language,
    metrics,
    off_policy,
    offline,
    reward,
    runner,
    sft,
    simulators,
    text,
)
from rlinf.config.checks.placement import check_placement, check_ratios
from rlinf.config.checks.sizes import WorldSizes
from rlinf.config.problems import Problems
from rlinf.config.schema.root import EmbodiedConfig, ReasoningConfig, RLinfConfig, SftConfig
from rlinf.placement import ClusterPlan, HybridComponentPlacement

RULES: dict[type[RLinfConfig], tuple[Callable[[Any, WorldSizes, Problems], None], ...]] = {
    EmbodiedConfig: (
        check_ratios,
        *batches.RULES,
        *algorithm.RULES,
        *asynchronous.RULES,
        *off_policy.RULES,
        *flow.RULES,
        *offline.RULES,
        *reward.RULES,
        *runner.RULES,
        *collection.RULES,
        *intervention.RULES,
        *hardware.RULES,
        *simulators.RULES,
        *language.RULES,
        *metrics.RULES,
    ),
    ReasoningConfig: (
        runner.check_intervals,
        runner.check_schedule,
        runner.check_names,
        *text.SHARED_RULES,
        *text.RULES,
        *inference.RULES,
        *language.RULES,
        *metrics.RULES,
    ),
    SftConfig: (
        runner.check_intervals,
        runner.check_names,
        *text.SHARED_RULES,
        *sft.RULES,
        *language.RULES,
        *metrics.RULES,
    ),
}
"""How the sections of a recipe must fit together, by its class."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A recipe that can run, with what follows from it.

    Attributes:
        cfg: The typed tree.
        placement: Where the components run.
        world: Sizes of the worker groups, as far as they are known offline.
    """

    cfg: RLinfConfig
    placement: HybridComponentPlacement
    world: WorldSizes


def validate_cfg(cfg: object) -> RLinfConfig:
    """Parse a recipe and check that its sections fit together, without starting or touching anything.

    Args:
        cfg: A nested mapping, an OmegaConf ``DictConfig`` or a typed tree.

    Returns:
        The typed tree, defaults filled in.

    Raises:
        ConfigError: One line for each problem; keys and values first, relations only once all of those are right.
        PlacementError: All problems are with the placement.
    """
    return plan_run(cfg).cfg


def plan_run(cfg: object, *, accelerators_per_node: int | Sequence[int] | None = None) -> RunPlan:
    """Validate a recipe and return what follows from it.

    Args:
        cfg: A nested mapping, an OmegaConf ``DictConfig`` or a typed tree.
        accelerators_per_node: Accelerators of nodes whose number no node group declares: one number for all, one for
            each node, or None when not known (what depends on it is then not checked).

    Raises:
        ConfigError: One line for each problem.
        PlacementError: All problems are with the placement.
    """
    typed = build_config(cfg)
    problems = Problems()
    placement, world = check_placement(typed, problems, accelerators_per_node)
    for rule in RULES[type(typed)]:
        rule(typed, world, problems)
    problems.raise_if_any()
    assert placement is not None  # a missing placement is a problem
    return RunPlan(typed, placement, world)


def planned_cluster(plan: RunPlan) -> ClusterPlan:
    """Return the cluster on paper that a plan was made on."""
    cluster = plan.placement.cluster
    assert isinstance(cluster, ClusterPlan)
    return cluster
