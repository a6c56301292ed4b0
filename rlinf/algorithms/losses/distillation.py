"""The policy gradient of on-policy distillation."""

from __future__ import annotations

import torch

from rlinf.algorithms.kl import MAX_LOG_RATIO, approximate_kl
from rlinf.algorithms.losses.inputs import LossInputs, LossOutput
from rlinf.config.schema.algorithm import DistillationLossConfig


def opd_loss(inputs: LossInputs, cfg: DistillationLossConfig) -> LossOutput:
    """Return -r A with the ratio r of the current to the old policy, unclipped.

    In the first update of a step r is 1, and the gradient is that of -A log p. With ``adv_type: opd`` A is
    log q - log p of the policies that taught and acted.

    Args:
        inputs: With ``logprobs``, ``old_logprobs`` and ``advantages``.
        cfg: Has no keys of its own.

    Returns:
        The loss, with the metrics ``actor_ratio``, ``actor_approx_kl`` (of the old from the current policy) and
        ``actor_reverse_kl`` (of the teacher from the old policy).
    """
    del cfg
    log_ratio = inputs.log_ratio()
    ratio = torch.exp(log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    advantages = inputs.masked("advantages").detach()
    metrics = {
        "actor_ratio": ratio.detach(),
        "actor_approx_kl": approximate_kl(log_ratio),
        "actor_reverse_kl": -advantages,
    }
    return LossOutput(-ratio * advantages, metrics)
