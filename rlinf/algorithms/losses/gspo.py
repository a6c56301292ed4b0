"""Group sequence policy optimisation: PPO's surrogate with one ratio per sequence."""

from __future__ import annotations

from dataclasses import replace

import torch

from rlinf.algorithms.kl import approximate_kl
from rlinf.algorithms.losses.inputs import LossInputs, LossOutput
from rlinf.algorithms.losses.ppo import clipped_surrogate
from rlinf.algorithms.sequences import mean_over_sequences
from rlinf.config.schema.algorithm import GSPOLossConfig


def gspo_loss(inputs: LossInputs, cfg: GSPOLossConfig) -> LossOutput:
    """Return the clipped surrogate of s = exp(mean over the sequence of log r) (Zheng et al., arXiv 2507.18071).

    This is GSPO-token (Eq. 13-14): a sequence's ratio s is the geometric mean of its tokens' ratios r (Eq. 7). Every
    token has this value and the gradient of its own log-probability, which with one advantage per sequence is the
    gradient of GSPO (Eq. 5) and also serves advantages that differ from token to token.

    Args:
        inputs: With ``logprobs``, ``old_logprobs`` and ``advantages``: rows [N, L], or packed [T].
        cfg: Clip ratios.

    Returns:
        The loss, with the metrics of ``ppo_loss``; ratio and clipping are those of sequences.
    """
    token_log_ratio = inputs.log_ratio()
    mean = mean_over_sequences(token_log_ratio.detach(), inputs.loss_mask, inputs.sequence_ids)
    sequence_log_ratio = torch.where(inputs.loss_mask, mean, torch.zeros_like(mean))
    log_ratio = sequence_log_ratio + (token_log_ratio - token_log_ratio.detach())
    clip = (cfg.clip_ratio_low, cfg.clip_ratio_high, None)
    output = clipped_surrogate(log_ratio, inputs.masked("advantages").detach(), clip)
    return replace(output, metrics={**output.metrics, "actor_approx_kl": approximate_kl(token_log_ratio)})
