"""``validate_cfg``: parsing, then every rule about how the sections fit together. Offline: starts nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rlinf.config.build import build_config
from rlinf.config.checks import (
    agent_checks,
    algorithm_checks,
    asynchronous_checks,
    batch_checks,
    collection_checks,
    flow_checks,
    hardware_checks,
    inference_checks,
    intervention_checks,
    language_checks,
    megatron_checks,
    metric_checks,
    off_policy_checks,
    offline_checks,
    reward_checks,
    runner_checks,
    sft_checks,
    simulator_checks,
    text_checks,
    value_checks,
    vla_checks,
)
from rlinf.config.checks.placement_checks import check_placement, check_ratios, check_replicas
from rlinf.config.checks.recipe_check import Check
from rlinf.config.checks.run_sizes import WorldSizes
from rlinf.config.problems import Problems
from rlinf.config.schema.root import CollectConfig, EmbodiedConfig, ReasoningConfig, RLinfConfig, SftConfig, ValueConfig
from rlinf.placement import ClusterPlan, HybridComponentPlacement

Rule: TypeAlias = Callable[[Check[Any]], None]
"""Reads the recipe and the sizes of its worker groups, and notes problems."""

RULES: dict[type[Any], tuple[Rule, ...]] = {
    EmbodiedConfig: (
        check_ratios,
        *batch_checks.RULES,
        *algorithm_checks.RULES,
        *asynchronous_checks.RULES,
        *off_policy_checks.RULES,
        *flow_checks.RULES,
        *offline_checks.RULES,
        *reward_checks.RULES,
        *runner_checks.RULES,
        *collection_checks.RULES,
        *intervention_checks.RULES,
        *hardware_checks.RULES,
        *simulator_checks.RULES,
        *vla_checks.RULES,
        *value_checks.POLICY_RULES,
        *language_checks.RULES,
        check_replicas,
        *metric_checks.RULES,
        *megatron_checks.SHARED_RULES,
    ),
    CollectConfig: collection_checks.COLLECT_RULES,
    ReasoningConfig: (
        runner_checks.check_intervals,
        runner_checks.check_schedule,
        runner_checks.check_names,
        *text_checks.SHARED_RULES,
        *text_checks.RULES,
        *agent_checks.RULES,
        *inference_checks.RULES,
        *language_checks.RULES,
        check_replicas,
        *metric_checks.RULES,
        *megatron_checks.SHARED_RULES,
        *megatron_checks.RULES,
    ),
    SftConfig: (
        runner_checks.check_intervals,
        runner_checks.check_names,
        *text_checks.SHARED_RULES,
        *sft_checks.RULES,
        *language_checks.RULES,
        check_replicas,
        *metric_checks.RULES,
        *megatron_checks.SHARED_RULES,
        *megatron_checks.RULES,
    ),
    ValueConfig: (
        runner_checks.check_intervals,
        runner_checks.check_names,
        *value_checks.RULES,
        check_replicas,
        *metric_checks.RULES,
        *megatron_checks.SHARED_RULES,
    ),
}
"""How the sections of a recipe must fit together, by its class; the rules of a base hold for its subclasses too."""


def register_rule(cls: type[RLinfConfig]) -> Callable[[Rule], Rule]:
    """Return a decorator that adds a rule to all recipes of a class, from a plug-in for example.

    Args:
        cls: The class of the whole recipe: ``EmbodiedConfig``, say.

    Returns:
        The decorator; it returns the rule unchanged. Rules of older plug-ins, which take the recipe, the sizes and the
        problems as three arguments, are called so.
    """

    def add(rule: Rule) -> Rule:
        takes_check = len(inspect.signature(rule).parameters) == 1
        RULES[cls] = (*RULES.get(cls, ()), rule if takes_check else _take_apart(rule))
        return rule

    return add


def _take_apart(rule: Callable[..., None]) -> Rule:
    return lambda check: rule(check.cfg, check.world, check.problems)


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
    check = Check(typed, world, problems)
    for cls in reversed(type(typed).__mro__):
        for rule in RULES.get(cls, ()):
            rule(check)
    problems.raise_if_any()
    assert placement is not None  # a missing placement is a problem
    return RunPlan(typed, placement, world)


def planned_cluster(plan: RunPlan) -> ClusterPlan:
    """Return the cluster on paper that a plan was made on."""
    cluster = plan.placement.cluster
    assert isinstance(cluster, ClusterPlan)
    return cluster
