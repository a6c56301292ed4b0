"""Group-relative policy optimisation."""

from __future__ import annotations

import torch

from rlinf.algorithms.statistics import EPSILON, GroupStatistics, trajectory_scores


def compute_grpo_advantages(
    *, rewards: torch.Tensor, loss_mask: torch.Tensor, group_ids: torch.Tensor, normalize_advantages: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compare each trajectory's score with its group's (Shao et al., arXiv 2402.03300, Section 4.1.2).

    The score is the undiscounted sum of rewards over valid steps, and all steps of a trajectory share its advantage.
    The standard deviation is the sample's (n - 1). A group of one, or of equal scores, has advantage 0. Normalisation
    is within the group; nothing is normalised over ranks, and a group's members must all be here.

    Args:
        rewards: [S, B].
        loss_mask: bool [S, B].
        group_ids: int64 [B].
        normalize_advantages: Divide by the group's standard deviation; False is Dr.GRPO (arXiv 2503.20783).

    Returns:
        Advantages, and as returns the scores, both [S, B] and 0 at invalid steps.
    """
    scores = trajectory_scores(rewards, loss_mask)
    groups = GroupStatistics(group_ids, loss_mask.any(dim=0))
    advantages = groups.centered(scores)
    if normalize_advantages:
        advantages = advantages / (groups.deviation(advantages) + EPSILON)
    return advantages * loss_mask, scores * loss_mask
