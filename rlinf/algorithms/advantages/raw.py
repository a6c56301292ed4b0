"""The score itself."""

from __future__ import annotations

import torch

from rlinf.algorithms.statistics import trajectory_scores
from rlinf.algorithms.steps import Steps
from rlinf.config.schema.algorithm import RawAdvantageConfig


def compute_raw_advantages(steps: Steps, cfg: RawAdvantageConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Give every valid step its trajectory's score: no baseline, no discount, no normalisation.

    Args:
        steps: Of the rollout.
        cfg: Not used.

    Returns:
        Advantages and returns, both the scores [S, B], 0 at invalid steps.
    """
    del cfg
    scores = trajectory_scores(steps.rewards, steps.loss_mask) * steps.loss_mask
    return scores, scores.clone()
