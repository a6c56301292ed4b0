"""Negative-aware fine-tuning: flow policies improved by their velocities alone, without any log-probability."""

from __future__ import annotations

import torch
from torch.nn.functional import softplus

from rlinf.algorithms.losses.inputs import LossInputs, LossOutput
from rlinf.algorithms.types import at_least_float32
from rlinf.config.schema.algorithm import NFTLossConfig

_LEAST_NORM = 1e-8
"""Of a change of velocities, which the bounded one is divided by."""


def nft_loss(inputs: LossInputs, cfg: NFTLossConfig) -> LossOutput:
    """Return r |v+ - target|^2 + (1 - r) |v- - target|^2, the loss of DiffusionNFT (Zheng et al., arXiv 2509.16117).

    v+ = (1 - beta) v_old + beta v and v- = (1 + beta) v_old - beta v are the implicit policies of good and of bad
    actions, and r = 1/2 + clip(advantage / adv_clip_max, -1, 1) / 2 in [0, 1] is the optimality of an action. The old
    policy is here the one that acted in this step, not a moving average. Actions that were cut off at a bound attract
    but do not repel: what is repelled from a bound ends beyond it, where it is cut off to the same action, so that
    velocities would grow without end.

    ``nft_loss_form: dpo`` is softplus(dpo_beta / 2 * (2 r - 1) * e) instead, in which e is the first squared error less
    the second, a mean over the numbers of an action: the logistic form of Diffusion-DPO (Wallace et al., arXiv
    2311.12908). ``nft_clip_ratio`` bounds the change of an action's velocity, relative to the old one: beyond the bound
    the larger loss counts, and the bounded one has no gradient.

    Args:
        inputs: With ``velocity``, ``old_velocity``, ``target``, ``saturated`` and ``advantages``, [N, C, A].
        cfg: ``nft_beta``, ``adv_clip_max`` and the form of the loss.

    Returns:
        The loss, with the metrics ``nft_positive_loss`` and ``nft_negative_loss`` (unweighted squared errors),
        ``nft_reward`` (r), ``nft_velocity_change`` (squared, from the old policy) and, with a bound,
        ``nft_clip_fraction`` (of actions beyond it).
    """
    # Masked before they are squared: an infinite value outside the mask would poison the gradient.
    velocity = at_least_float32(inputs.masked("velocity"))
    old, target = inputs.masked("old_velocity").detach(), inputs.masked("target").detach()
    change = cfg.nft_beta * (velocity - old)
    positive, negative = (old + change - target).square(), (old - change - target).square()
    optimality = (inputs.masked("advantages").detach() / cfg.adv_clip_max).clamp(-1.0, 1.0)
    (saturated,) = inputs.require("saturated")
    reward = 0.5 + 0.5 * torch.where(saturated, optimality.clamp(min=0.0), optimality)
    metrics = {
        "nft_positive_loss": positive,
        "nft_negative_loss": negative,
        "nft_reward": reward,
        "nft_velocity_change": (velocity - old).square(),
    }
    if cfg.nft_loss_form == "dpo":
        margin = (positive - negative).mean(dim=-1, keepdim=True)
        return LossOutput(softplus(0.5 * cfg.dpo_beta * (2.0 * reward - 1.0) * margin), metrics, name="nft_loss")
    loss = reward * positive + (1.0 - reward) * negative
    if cfg.nft_clip_ratio is not None:
        bounded, is_beyond = _bound_change(velocity - old, old, cfg.nft_clip_ratio)
        change = cfg.nft_beta * bounded
        positive, negative = (old + change - target).square(), (old - change - target).square()
        loss = torch.maximum(loss, reward * positive + (1.0 - reward) * negative)
        metrics["nft_clip_fraction"] = is_beyond
    return LossOutput(loss, metrics, name="nft_loss")


def _bound_change(change: torch.Tensor, old: torch.Tensor, ratio: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Shorten changes of velocities to a share of the old ones; what is shortened has no gradient.

    Args:
        change: [N, C, A].
        old: [N, C, A].
        ratio: Largest norm of an action's change, relative to that of its old velocity.

    Returns:
        The bounded changes, and 1 where they were shortened, else 0; both [N, C, A].
    """
    limit = ratio * old.norm(dim=-1, keepdim=True)
    norm = change.detach().norm(dim=-1, keepdim=True)
    is_beyond = norm > limit
    bounded = torch.where(is_beyond, (change * limit / norm.clamp_min(_LEAST_NORM)).detach(), change)
    return bounded, is_beyond.to(change.dtype).expand_as(change)
