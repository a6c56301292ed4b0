"""Filters of groups without a learning signal."""

from __future__ import annotations

import math

import torch

from rlinf.algorithms.statistics import GroupStatistics, trajectory_scores
from rlinf.algorithms.steps import Steps
from rlinf.config.schema.algorithm import AdvantageConfig, GroupFilterConfig


def filter_groups(
    *,
    rewards: torch.Tensor,
    loss_mask: torch.Tensor,
    group_ids: torch.Tensor,
    rewards_lower_bound: float | None,
    rewards_upper_bound: float | None,
) -> torch.Tensor:
    """Return ``loss_mask`` without the groups whose mean score lies outside the bounds (both inclusive).

    Without any bound, the groups whose scores are all equal are left out: their advantages are 0.

    Advantage functions do not filter: the caller applies this first and uses the returned mask for the advantages and
    for the loss alike.

    Args:
        rewards: [S, B].
        loss_mask: bool [S, B].
        group_ids: int64 [B]; a group's trajectories must all be on this rank.
        rewards_lower_bound: Smallest mean score of a group that is kept; None sets no such bound.
        rewards_upper_bound: Largest mean score of a group that is kept; None sets no such bound.

    Returns:
        bool [S, B].
    """
    scores = trajectory_scores(rewards, loss_mask)
    groups = GroupStatistics(group_ids, loss_mask.any(dim=0))
    if rewards_lower_bound is None and rewards_upper_bound is None:
        return loss_mask & (groups.deviation(groups.centered(scores)) > 0)
    lower = -math.inf if rewards_lower_bound is None else rewards_lower_bound
    upper = math.inf if rewards_upper_bound is None else rewards_upper_bound
    mean = groups.mean(scores)
    return loss_mask & (mean >= lower) & (mean <= upper)


def filter_by_config(steps: Steps, cfg: AdvantageConfig) -> torch.Tensor:
    """Return the steps' ``loss_mask`` without the groups that the keys of an advantage estimator filter out.

    Args:
        steps: Whole groups.
        cfg: Keys of the estimator; one without ``filter_rewards`` filters nothing.
    """
    if not isinstance(cfg, GroupFilterConfig) or not cfg.filter_rewards:
        return steps.loss_mask
    (group_ids,) = steps.require("group_ids")
    return filter_groups(
        rewards=steps.rewards,
        loss_mask=steps.loss_mask,
        group_ids=group_ids,
        rewards_lower_bound=cfg.rewards_lower_bound,
        rewards_upper_bound=cfg.rewards_upper_bound,
    )


def informative_groups(scores: torch.Tensor, group_ids: torch.Tensor, cfg: AdvantageConfig) -> torch.Tensor:
    """Return which samples belong to a group with a learning signal: its scores differ, and no bound filters it out.

    Dynamic sampling replaces the others.

    Args:
        scores: float [N].
        group_ids: int64 [N]; whole groups.
        cfg: See ``filter_by_config``.

    Returns:
        bool [N].
    """
    everywhere = torch.ones_like(scores, dtype=torch.bool)
    kept = filter_by_config(Steps(rewards=scores[None], loss_mask=everywhere[None], group_ids=group_ids), cfg)
    return kept[0] & differing_groups(scores, group_ids)


def differing_groups(scores: torch.Tensor, group_ids: torch.Tensor) -> torch.Tensor:
    """Return which samples belong to a group whose scores are not all equal: the others have advantage 0 throughout.

    The filter of dynamic sampling in DAPO (Yu et al., arXiv 2503.14476, Eq. 11), for any kind of score: groups for
    which this is false are replaced by further prompts until the batch is full.

    Args:
        scores: float [N].
        group_ids: int64 [N]; whole groups.

    Returns:
        bool [N].
    """
    groups = GroupStatistics(group_ids, torch.ones_like(group_ids, dtype=torch.bool))
    return groups.deviation(groups.centered(scores)) > 0
