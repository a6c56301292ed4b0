"""Negative-aware fine-tuning: flow policies improved by their velocities alone, without any log-probability."""

from __future__ import annotations

import torch

from rlinf.algorithms.aggregation import LossDenominators, aggregate_loss
from rlinf.algorithms.losses.actor_critic import mean_value_loss
from rlinf.algorithms.losses.terms import loss_metric
from rlinf.algorithms.types import Metrics, at_least_float32, masked_metrics, require_same_shape
from rlinf.errors import AlgorithmError


def nft_loss(
    *,
    velocity: torch.Tensor,
    old_velocity: torch.Tensor,
    target: torch.Tensor,
    saturated: torch.Tensor,
    advantages: torch.Tensor,
    loss_mask: torch.Tensor,
    denominators: LossDenominators,
    nft_beta: float,
    adv_clip_max: float,
    loss_agg_func: str,
    value_loss_coef: float,
    value_clip: float | None,
    huber_delta: float | None,
    values: torch.Tensor | None = None,
    prev_values: torch.Tensor | None = None,
    returns: torch.Tensor | None = None,
    value_mask: torch.Tensor | None = None,
) -> tuple[torch.Tensor, Metrics]:
    """Compute a micro-batch's part of the loss of DiffusionNFT, and of a value loss where there are values.

    After Zheng et al., arXiv 2509.16117: with ``r`` in [0, 1] for how good an action was, ``r |v+ - target|^2 +
    (1 - r) |v- - target|^2``, where ``v+ = (1 - beta) v_old + beta v`` and ``v- = (1 + beta) v_old - beta v`` are the
    implicit policies of good and of bad actions. ``r = 1/2 + clip(advantage / adv_clip_max, -1, 1) / 2``. The old
    policy is here the one that acted in this step, not a moving average. Actions that
    were cut off at a bound draw but do not repel: what is repelled from a bound ends beyond it, where it is cut off to
    the same action, so that velocities would grow without end.

    Args:
        velocity: [N, C, A] of the current policy, with gradient.
        old_velocity: Same shape; of the policy that acted, at the same points.
        target: Same shape; from the noise to the actions taken.
        saturated: bool, same shape; actions that were cut off at a bound.
        advantages: Same shape.
        loss_mask: bool, same shape; entries outside may be anything.
        denominators: Counts over the update batch.
        nft_beta: How far the implicit policies lie from the old one; the smaller, the larger the improvement.
        adv_clip_max: Advantage at which an action counts as entirely good.
        loss_agg_func: See ``aggregate_loss``.
        value_loss_coef: Weight of the value loss.
        value_clip: See ``actor_critic_loss``.
        huber_delta: See ``actor_critic_loss``.
        values: [N, K] of the current model, with gradient; None without a value head.
        prev_values: [N, K] predicted during the rollout.
        returns: [N, K], the values' targets.
        value_mask: bool [N, K].

    Returns:
        Scalar loss, and metrics as (sum, count) pairs: ``nft_loss``, ``total_loss``, ``nft_positive_loss`` and
        ``nft_negative_loss`` (unweighted squared errors), ``nft_reward`` (``r``), ``nft_velocity_change`` (squared,
        from the old policy), and with values those of ``value_loss``.

    Raises:
        AlgorithmError: Shapes that differ, or values without their targets.
    """
    require_same_shape(
        "nft_loss",
        velocity=velocity,
        old_velocity=old_velocity,
        target=target,
        saturated=saturated,
        advantages=advantages,
        loss_mask=loss_mask,
    )
    # Masked before they are squared: an infinite value outside the mask would poison the gradient.
    velocity, old, target, signal = (
        torch.where(loss_mask, tensor, torch.zeros_like(tensor))
        for tensor in (at_least_float32(velocity), old_velocity.detach(), target.detach(), advantages.detach())
    )
    per_entry, errors = _weighted_errors(
        velocity, old, target, signal, saturated, nft_beta=nft_beta, adv_clip_max=adv_clip_max
    )
    loss = aggregate_loss(per_entry, loss_mask, loss_agg_func=loss_agg_func, denominators=denominators.policy)
    metrics = masked_metrics(loss_mask, **errors)
    metrics["nft_loss"] = loss_metric(loss, loss_mask, denominators)
    if values is not None:
        if prev_values is None or returns is None or value_mask is None:
            raise AlgorithmError("nft_loss: 'values' need 'prev_values', 'returns' and 'value_mask'. Pass them too.")
        critic, value_metrics = mean_value_loss(
            values=values,
            prev_values=prev_values,
            returns=returns,
            value_mask=value_mask,
            value_clip=value_clip,
            huber_delta=huber_delta,
            denominators=denominators,
        )
        loss = loss + value_loss_coef * critic
        metrics.update(value_metrics)
    metrics["total_loss"] = loss_metric(loss, loss_mask, denominators)
    return loss, metrics


def _weighted_errors(
    velocity: torch.Tensor,
    old: torch.Tensor,
    target: torch.Tensor,
    advantages: torch.Tensor,
    saturated: torch.Tensor,
    *,
    nft_beta: float,
    adv_clip_max: float,
) -> tuple[torch.Tensor, Metrics]:
    """Return the loss of each entry, and by name the numbers per entry that metrics are made of."""
    change = nft_beta * (velocity - old)
    positive, negative = (old + change - target).square(), (old - change - target).square()
    optimality = (advantages / adv_clip_max).clamp(-1.0, 1.0)
    reward = 0.5 + 0.5 * torch.where(saturated, optimality.clamp(min=0.0), optimality)
    return reward * positive + (1.0 - reward) * negative, {
        "nft_positive_loss": positive,
        "nft_negative_loss": negative,
        "nft_reward": reward,
        "nft_velocity_change": (velocity - old).square(),
    }
