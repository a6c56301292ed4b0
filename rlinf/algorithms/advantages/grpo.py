"""Group-relative policy optimisation."""

from __future__ import annotations

import torch

from rlinf.algorithms.statistics import EPSILON, GroupStatistics, trajectory_scores
from rlinf.algorithms.steps import Steps
from rlinf.config.schema.algorithm import GRPOConfig


def compute_grpo_advantages(steps: Steps, cfg: GRPOConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Compare each trajectory's score with its group's (Shao et al., arXiv 2402.03300, Section 4.1.2).

    The score is the undiscounted sum of rewards over valid steps, and all steps of a trajectory share its advantage.
    The standard deviation is the sample's (n - 1). A group of one, or of equal scores, has advantage 0. Normalisation
    is within the group; nothing is normalised over ranks, and a group's trajectories must all be here.

    Args:
        steps: With ``group_ids``.
        cfg: ``normalize_advantages`` divides by the group's standard deviation; False is Dr.GRPO (arXiv 2503.20783).

    Returns:
        Advantages, and as returns the scores, both [S, B] and 0 at invalid steps.
    """
    (group_ids,) = steps.require("group_ids")
    scores = trajectory_scores(steps.rewards, steps.loss_mask)
    groups = GroupStatistics(group_ids, steps.loss_mask.any(dim=0))
    advantages = groups.centered(scores)
    if cfg.normalize_advantages:
        advantages = advantages / (groups.deviation(advantages) + EPSILON)
    return advantages * steps.loss_mask, scores * steps.loss_mask
