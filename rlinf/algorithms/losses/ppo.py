"""Proximal policy optimisation: the clipped surrogate objective."""

from __future__ import annotations

import torch

from rlinf.algorithms.kl import MAX_LOG_RATIO, approximate_kl
from rlinf.algorithms.losses.inputs import LossInputs, LossOutput
from rlinf.config.schema.algorithm import PPOLossConfig


def ppo_loss(inputs: LossInputs, cfg: PPOLossConfig) -> LossOutput:
    """Return -min(r A, clip(r, 1 - low, 1 + high) A), with r the ratio of the current to the old policy.

    Schulman et al., arXiv 1707.06347, Eq. 7; with ``clip_ratio_c`` the dual clip of Ye et al., arXiv 1912.09729, Eq. 5.

    Args:
        inputs: With ``logprobs``, ``old_logprobs`` and ``advantages``.
        cfg: Clip ratios.

    Returns:
        The loss, with the metrics ``actor_ratio``, ``actor_approx_kl`` (k3 of old against current),
        ``actor_clip_fraction`` and ``actor_dual_clip_fraction``.
    """
    clip = (cfg.clip_ratio_low, cfg.clip_ratio_high, cfg.clip_ratio_c)
    return clipped_surrogate(inputs.log_ratio(), inputs.masked("advantages").detach(), clip)


def clipped_surrogate(
    log_ratio: torch.Tensor, advantages: torch.Tensor, clip: tuple[float, float, float | None]
) -> LossOutput:
    """Return PPO's loss of each entry from the logarithm of its ratio.

    Args:
        log_ratio: [N, ...], with gradient.
        advantages: [N, ...].
        clip: The ratio is clipped to within 1 - the first and 1 + the second; the loss of negative advantages is at
            most minus the third times the advantage, if it is not None.
    """
    low, high, dual = clip
    ratio = torch.exp(log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    unclipped = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - low, 1 + high)
    loss = torch.maximum(unclipped, clipped)
    is_clipped = clipped > unclipped
    is_dual_clipped = torch.zeros_like(is_clipped)
    if dual is not None:
        bound = -advantages * dual
        is_dual_clipped = (advantages < 0) & (loss > bound)
        loss = torch.where(is_dual_clipped, bound, loss)
    metrics = {
        "actor_ratio": ratio,
        "actor_approx_kl": approximate_kl(log_ratio),
        "actor_clip_fraction": is_clipped.to(ratio),
        "actor_dual_clip_fraction": is_dual_clipped.to(ratio),
    }
    return LossOutput(loss, metrics)
