"""Clipped importance-sampling policy optimisation: the weight is clipped, the gradient never dropped."""

from __future__ import annotations

import torch

from rlinf.algorithms.kl import MAX_LOG_RATIO, approximate_kl
from rlinf.algorithms.losses.inputs import LossInputs, LossOutput
from rlinf.algorithms.types import at_least_float32
from rlinf.config.schema.algorithm import CISPOLossConfig


def cispo_loss(inputs: LossInputs, cfg: CISPOLossConfig) -> LossOutput:
    """Return -clip(r, 1 - low, 1 + high) A log p, the clipped ratio a constant (MiniMax, arXiv 2506.13585, Eq. 4-5).

    Tokens outside the bounds keep a gradient, bounded in size. At ``clip_ratio_low`` 1 there is no lower bound, as in
    the paper.

    Args:
        inputs: With ``logprobs``, ``old_logprobs`` and ``advantages``.
        cfg: Clip ratios.

    Returns:
        The loss, with the metrics ``actor_ratio``, ``actor_approx_kl`` and
        ``actor_clip_fraction`` (of clipped weights).
    """
    log_ratio = inputs.log_ratio().detach()
    ratio = torch.exp(log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    weight = ratio.clamp(1 - cfg.clip_ratio_low, 1 + cfg.clip_ratio_high)
    logprobs = at_least_float32(inputs.masked("logprobs"))
    loss = -weight * inputs.masked("advantages").detach() * logprobs
    metrics = {
        "actor_ratio": ratio,
        "actor_approx_kl": approximate_kl(log_ratio),
        "actor_clip_fraction": (weight != ratio).to(ratio),
    }
    return LossOutput(loss, metrics)
