"""REINFORCE leave-one-out."""

from __future__ import annotations

import torch

from rlinf.algorithms.statistics import GroupStatistics, trajectory_scores
from rlinf.algorithms.steps import Steps
from rlinf.config.schema.algorithm import RLOOConfig


def compute_rloo_advantages(steps: Steps, cfg: RLOOConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Compare each trajectory's score with the mean of the others in its group (arXiv 2402.14740, Eq. 8).

    A group of one has nothing to compare with: its advantage is 0. A group's trajectories must all be on this rank.

    Args:
        steps: With ``group_ids``.
        cfg: Not used.

    Returns:
        Advantages, and as returns the scores, both [S, B] and 0 at invalid steps.
    """
    del cfg
    (group_ids,) = steps.require("group_ids")
    scores = trajectory_scores(steps.rewards, steps.loss_mask)
    groups = GroupStatistics(group_ids, steps.loss_mask.any(dim=0))
    # score - mean of the others = (score - mean of all) * n / (n - 1)
    advantages = groups.centered(scores) * groups.sizes / (groups.sizes - 1).clamp(min=1)
    return advantages * steps.loss_mask, scores * steps.loss_mask
