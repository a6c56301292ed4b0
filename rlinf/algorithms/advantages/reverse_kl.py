"""On-policy distillation: every token's advantage is how much likelier the teacher finds it."""

from __future__ import annotations

import torch

from rlinf.algorithms.steps import Steps
from rlinf.config.schema.algorithm import DistillationConfig
from rlinf.errors import AlgorithmError


def compute_opd_advantages(steps: Steps, cfg: DistillationConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log q - log p of each sampled token, teacher q, student p: minus the sample of KL(p || q).

    On-policy distillation (Agarwal et al., arXiv 2306.13649, with the reverse KL): its policy gradient, each token
    credited with its own term alone. Rewards have no part in it.

    Args:
        steps: Of the rollout, with ``kl`` from the teacher (estimator ``k1``).
        cfg: Not used.

    Returns:
        Advantages [S, B], 0 at invalid steps, and as returns the same.

    Raises:
        AlgorithmError: The steps have no KL.
    """
    del cfg
    if steps.kl is None:
        raise AlgorithmError("adv_type=opd needs log-probabilities of a teacher. Set algorithm.teacher.model.")
    advantages = torch.where(steps.loss_mask, -steps.kl, torch.zeros_like(steps.kl))
    return advantages, advantages.clone()
