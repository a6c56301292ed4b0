"""PPO with a value function."""

from __future__ import annotations

import torch
from torch.nn import functional

from rlinf.algorithms.losses.inputs import LossInputs, LossOutput
from rlinf.algorithms.losses.ppo import ppo_loss
from rlinf.algorithms.types import at_least_float32, require_same_shape
from rlinf.config.schema.algorithm import ActorCriticLossConfig, ValueLossConfig
from rlinf.errors import AlgorithmError


def actor_critic_loss(inputs: LossInputs, cfg: ActorCriticLossConfig) -> LossOutput:
    """Return PPO's loss; the value loss is one of the terms that the config adds (``value_loss_coef``).

    Args:
        inputs: With those of ``ppo_loss``, ``values``, ``prev_values`` and ``returns``.
        cfg: Clip ratios.

    Raises:
        AlgorithmError: No values.
    """
    if inputs.values is None or inputs.prev_values is None:
        raise AlgorithmError("actor_critic_loss: needs 'values' and 'prev_values'; give the model a value head.")
    return ppo_loss(inputs, cfg)


def value_loss(inputs: LossInputs, cfg: ValueLossConfig) -> LossOutput:
    """Return half the squared error of each value, or Huber's.

    With ``value_clip`` the larger of the losses of the prediction, and of the prediction clipped to within
    ``value_clip`` of that during the rollout.

    Args:
        inputs: With ``values``, ``prev_values`` and ``returns``.
        cfg: ``value_clip`` and ``huber_delta``.

    Returns:
        The loss, 0 outside the value mask, with the metrics ``critic_value_loss``, ``critic_value``,
        ``critic_value_clip_fraction`` and the parts of the explained variance, which ``finalize_metrics`` computes.

    Raises:
        AlgorithmError: Shapes that differ, or a tensor that is missing.
    """
    values, prev_values, returns = inputs.require("values", "prev_values", "returns")
    mask = inputs.loss_mask if inputs.value_mask is None else inputs.value_mask
    require_same_shape("value_loss", values=values, prev_values=prev_values, returns=returns, value_mask=mask)
    values = at_least_float32(values)
    zeros = torch.zeros_like(values)
    values = torch.where(mask, values, zeros)
    targets = torch.where(mask, returns.to(values), zeros).detach()
    anchors = torch.where(mask, prev_values.to(values), zeros).detach()
    loss = _regression_loss(values, targets, cfg.huber_delta)
    change = values - anchors
    is_clipped = zeros
    if cfg.value_clip is not None:
        clipped = anchors + change.clamp(-cfg.value_clip, cfg.value_clip)
        loss = torch.maximum(loss, _regression_loss(clipped, targets, cfg.huber_delta))
        # Of the change as it is; that of the clamped prediction never exceeds the bound.
        is_clipped = (change.abs() > cfg.value_clip).to(values)
    error = (targets - values).detach()
    metrics = {
        "critic_value_loss": loss,
        "critic_value": values,
        "critic_value_clip_fraction": is_clipped,
        "critic_return": targets,
        "critic_return_square": targets.square(),
        "critic_error": error,
        "critic_error_square": error.square(),
    }
    return LossOutput(loss, metrics, name="critic_value_loss")


def _regression_loss(values: torch.Tensor, targets: torch.Tensor, huber_delta: float | None) -> torch.Tensor:
    if huber_delta is None:
        return 0.5 * (values - targets).square()
    return functional.huber_loss(values, targets, reduction="none", delta=huber_delta)
