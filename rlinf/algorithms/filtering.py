"""Leaving out groups that teach nothing."""

from __future__ import annotations

import torch

from rlinf.algorithms.statistics import GroupStatistics, trajectory_scores


def filter_groups(
    *,
    rewards: torch.Tensor,
    loss_mask: torch.Tensor,
    group_ids: torch.Tensor,
    rewards_lower_bound: float,
    rewards_upper_bound: float,
) -> torch.Tensor:
    """Return ``loss_mask`` without the groups whose mean score lies outside the bounds (both inclusive).

    Advantage functions do not filter: the caller applies this first and uses the returned mask for the advantages and
    for the loss alike.

    Args:
        rewards: [S, B].
        loss_mask: bool [S, B].
        group_ids: int64 [B]; a group's members must all be on this rank.
        rewards_lower_bound: Smallest mean score of a group that is kept.
        rewards_upper_bound: Largest mean score of a group that is kept.

    Returns:
        bool [S, B].
    """
    scores = trajectory_scores(rewards, loss_mask)
    mean = GroupStatistics(group_ids, loss_mask.any(dim=0)).mean(scores)
    return loss_mask & (mean >= rewards_lower_bound) & (mean <= rewards_upper_bound)
