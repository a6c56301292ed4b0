"""REINFORCE leave-one-out."""

from __future__ import annotations

import torch

from rlinf.algorithms.statistics import GroupStatistics, trajectory_scores


def compute_rloo_advantages(
    *, rewards: torch.Tensor, loss_mask: torch.Tensor, group_ids: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compare each trajectory's score with the mean of the others in its group (arXiv 2402.14740, Eq. 8).

    A group of one has nothing to compare with: its advantage is 0. A group's members must all be on this rank.

    Args:
        rewards: [S, B].
        loss_mask: bool [S, B].
        group_ids: int64 [B].

    Returns:
        Advantages, and as returns the scores, both [S, B] and 0 at invalid steps.
    """
    scores = trajectory_scores(rewards, loss_mask)
    groups = GroupStatistics(group_ids, loss_mask.any(dim=0))
    # score - mean of the others = (score - mean of all) * n / (n - 1)
    advantages = groups.centered(scores) * groups.sizes / (groups.sizes - 1).clamp(min=1)
    return advantages * loss_mask, scores * loss_mask
