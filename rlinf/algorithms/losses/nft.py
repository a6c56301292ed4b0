"""Negative-aware fine-tuning: flow policies improved by their velocities alone, without any log-probability."""

from __future__ import annotations

import torch

from rlinf.algorithms.losses.inputs import LossInputs, LossOutput
from rlinf.algorithms.types import at_least_float32
from rlinf.config.schema.algorithm import NFTLossConfig


def nft_loss(inputs: LossInputs, cfg: NFTLossConfig) -> LossOutput:
    """Return r |v+ - target|^2 + (1 - r) |v- - target|^2, the loss of DiffusionNFT (Zheng et al., arXiv 2509.16117).

    v+ = (1 - beta) v_old + beta v and v- = (1 + beta) v_old - beta v are the implicit policies of good and of bad
    actions, and r = 1/2 + clip(advantage / adv_clip_max, -1, 1) / 2 in [0, 1] is the optimality of an action. The old
    policy is here the one that acted in this step, not a moving average. Actions that were cut off at a bound attract
    but do not repel: what is repelled from a bound ends beyond it, where it is cut off to the same action, so that
    velocities would grow without end.

    Args:
        inputs: With ``velocity``, ``old_velocity``, ``target``, ``saturated`` and ``advantages``, [N, C, A].
        cfg: ``nft_beta`` and ``adv_clip_max``.

    Returns:
        The loss, with the metrics ``nft_positive_loss`` and ``nft_negative_loss`` (unweighted squared errors),
        ``nft_reward`` (r) and ``nft_velocity_change`` (squared, from the old policy).
    """
    # Masked before they are squared: an infinite value outside the mask would poison the gradient.
    velocity = at_least_float32(inputs.masked("velocity"))
    old, target = inputs.masked("old_velocity").detach(), inputs.masked("target").detach()
    change = cfg.nft_beta * (velocity - old)
    positive, negative = (old + change - target).square(), (old - change - target).square()
    optimality = (inputs.masked("advantages").detach() / cfg.adv_clip_max).clamp(-1.0, 1.0)
    (saturated,) = inputs.require("saturated")
    reward = 0.5 + 0.5 * torch.where(saturated, optimality.clamp(min=0.0), optimality)
    loss = reward * positive + (1.0 - reward) * negative
    metrics = {
        "nft_positive_loss": positive,
        "nft_negative_loss": negative,
        "nft_reward": reward,
        "nft_velocity_change": (velocity - old).square(),
    }
    return LossOutput(loss, metrics, name="nft_loss")
