"""The actor's loss together with a value loss."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from rlinf.algorithms.aggregation import LossDenominators, aggregate_loss
from rlinf.algorithms.losses.actor import actor_loss
from rlinf.algorithms.losses.terms import loss_metric
from rlinf.algorithms.types import Metrics, at_least_float32, masked_metrics, require_same_shape
from rlinf.errors import AlgorithmError


def actor_critic_loss(
    *,
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    loss_mask: torch.Tensor,
    values: torch.Tensor | None,
    prev_values: torch.Tensor | None,
    returns: torch.Tensor,
    denominators: LossDenominators,
    clip_ratio_low: float,
    clip_ratio_high: float,
    clip_ratio_c: float | None,
    loss_agg_func: str,
    entropy_bonus: float,
    kl_beta: float,
    kl_penalty: str,
    value_loss_coef: float,
    value_clip: float | None,
    huber_delta: float | None,
    value_mask: torch.Tensor | None = None,
    entropy: torch.Tensor | None = None,
    entropy_mask: torch.Tensor | None = None,
    ref_logprobs: torch.Tensor | None = None,
    sequence_ids: torch.Tensor | None = None,
    behaviour_logprobs: torch.Tensor | None = None,
) -> tuple[torch.Tensor, Metrics]:
    """Compute a micro-batch's part of the actor's loss + value_loss_coef * value loss.

    The value loss is a mean over valid entries whatever ``loss_agg_func``. Arguments that are not listed are those of
    ``actor_loss``.

    Args:
        logprobs: See ``actor_loss``; likewise all that is not listed below.
        old_logprobs: See ``actor_loss``.
        advantages: See ``actor_loss``.
        loss_mask: See ``actor_loss``.
        values: [N, K] of the current model, with gradient.
        prev_values: [N, K] predicted during the rollout.
        returns: [N, K], the values' targets.
        denominators: Counts over the update batch.
        clip_ratio_low: See ``actor_loss``.
        clip_ratio_high: See ``actor_loss``.
        clip_ratio_c: See ``actor_loss``.
        loss_agg_func: See ``actor_loss``.
        entropy_bonus: See ``actor_loss``.
        kl_beta: See ``actor_loss``.
        kl_penalty: See ``actor_loss``.
        value_loss_coef: Weight of the value loss.
        value_clip: Largest change of a prediction that lowers the loss; None does not clip.
        huber_delta: Size of error at which the loss turns from squared to linear; None is squared throughout.
        value_mask: bool [N, K]; None takes ``loss_mask``, which must then have that shape.
        entropy: See ``actor_loss``.
        entropy_mask: See ``actor_loss``.
        ref_logprobs: See ``actor_loss``.
        sequence_ids: See ``actor_loss``.
        behaviour_logprobs: See ``actor_loss``.

    Returns:
        Scalar loss, and the metrics of ``actor_loss`` with ``critic_value_loss``, ``critic_value``,
        ``critic_value_clip_fraction`` and the parts of the explained variance, which ``finalize_metrics`` computes.

    Raises:
        AlgorithmError: Shapes that differ, no values, or a weight without its tensor.
    """
    loss, metrics = actor_loss(
        logprobs=logprobs,
        old_logprobs=old_logprobs,
        advantages=advantages,
        loss_mask=loss_mask,
        denominators=denominators,
        clip_ratio_low=clip_ratio_low,
        clip_ratio_high=clip_ratio_high,
        clip_ratio_c=clip_ratio_c,
        loss_agg_func=loss_agg_func,
        entropy_bonus=entropy_bonus,
        kl_beta=kl_beta,
        kl_penalty=kl_penalty,
        entropy=entropy,
        entropy_mask=entropy_mask,
        ref_logprobs=ref_logprobs,
        sequence_ids=sequence_ids,
        behaviour_logprobs=behaviour_logprobs,
    )
    if values is None or prev_values is None:
        raise AlgorithmError("actor_critic_loss: needs 'values' and 'prev_values'; give the model a value head.")
    critic, value_metrics = mean_value_loss(
        values=values,
        prev_values=prev_values,
        returns=returns,
        value_mask=loss_mask if value_mask is None else value_mask,
        value_clip=value_clip,
        huber_delta=huber_delta,
        denominators=denominators,
    )
    loss = loss + value_loss_coef * critic
    return loss, metrics | value_metrics | {"total_loss": loss_metric(loss, loss_mask, denominators)}


def mean_value_loss(
    *, value_mask: torch.Tensor, denominators: LossDenominators, **kwargs: Any
) -> tuple[torch.Tensor, Metrics]:
    """Return the micro-batch's part of the mean of ``value_loss``, and its metrics.

    Args:
        value_mask: bool [N, K].
        denominators: Counts over the update batch.
        **kwargs: The other arguments of ``value_loss``.
    """
    per_entry, metrics = value_loss(value_mask=value_mask, **kwargs)
    return aggregate_loss(per_entry, value_mask, loss_agg_func="token-mean", denominators=denominators.value), metrics


def value_loss(
    *,
    values: torch.Tensor,
    prev_values: torch.Tensor,
    returns: torch.Tensor,
    value_mask: torch.Tensor,
    value_clip: float | None,
    huber_delta: float | None,
) -> tuple[torch.Tensor, Metrics]:
    """Return each prediction's loss: half the squared error, or Huber's, of the prediction and of the clipped one.

    Args:
        values: [N, K] of the current model, with gradient.
        prev_values: [N, K] predicted during the rollout.
        returns: [N, K].
        value_mask: bool [N, K]; entries outside may be anything.
        value_clip: The larger of the losses of the prediction and of the prediction clipped to within this of
            ``prev_values`` counts; None does not clip.
        huber_delta: See ``actor_critic_loss``.

    Returns:
        Losses [N, K], 0 outside the mask, and metrics.

    Raises:
        AlgorithmError: Shapes that differ.
    """
    require_same_shape("value_loss", values=values, prev_values=prev_values, returns=returns, value_mask=value_mask)
    values = at_least_float32(values)
    zeros = torch.zeros_like(values)
    values = torch.where(value_mask, values, zeros)
    targets = torch.where(value_mask, returns.to(values), zeros).detach()
    anchors = torch.where(value_mask, prev_values.to(values), zeros).detach()
    loss = _regression_loss(values, targets, huber_delta)
    change = values - anchors
    is_clipped = zeros
    if value_clip is not None:
        within = anchors + change.clamp(-value_clip, value_clip)
        loss = torch.maximum(loss, _regression_loss(within, targets, huber_delta))
        # Of the change as it is; that of the clamped prediction never exceeds the bound.
        is_clipped = (change.abs() > value_clip).to(values)
    error = (targets - values).detach()
    return loss, masked_metrics(
        value_mask,
        critic_value_loss=loss,
        critic_value=values,
        critic_value_clip_fraction=is_clipped,
        critic_return=targets,
        critic_return_square=targets.square(),
        critic_error=error,
        critic_error_square=error.square(),
    )


def _regression_loss(values: torch.Tensor, targets: torch.Tensor, huber_delta: float | None) -> torch.Tensor:
    if huber_delta is None:
        return 0.5 * (values - targets).square()
    return functional.huber_loss(values, targets, reduction="none", delta=huber_delta)
