"""The score itself."""

from __future__ import annotations

import torch

from rlinf.algorithms.statistics import trajectory_scores


def compute_raw_advantages(*, rewards: torch.Tensor, loss_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Give every valid step its trajectory's score: no baseline, no discount, no normalisation.

    Args:
        rewards: [S, B].
        loss_mask: bool [S, B].

    Returns:
        Advantages and returns, both the scores [S, B], 0 at invalid steps.
    """
    scores = trajectory_scores(rewards, loss_mask) * loss_mask
    return scores, scores.clone()
