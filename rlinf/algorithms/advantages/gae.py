"""Generalised advantage estimation."""

from __future__ import annotations

import torch

from rlinf.algorithms.statistics import normalize_masked
from rlinf.algorithms.steps import Steps
from rlinf.algorithms.types import require_same_shape
from rlinf.config.schema.algorithm import GAEConfig
from rlinf.errors import AlgorithmError


def compute_gae_advantages(steps: Steps, cfg: GAEConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute advantages after Schulman et al., arXiv 1506.02438, Eq. 16.

    A done cuts the recursion. Behind it follows ``bootstrap_values``, which equals adding gamma * V(last state) to the
    reward of the step that was truncated. Invalid steps are passed over: the step before one is followed by the step
    after it.

    Args:
        steps: With ``values`` and ``dones``.
        cfg: ``gamma`` and ``gae_lambda`` per step; ``normalize_advantages`` over all valid steps of all ranks.

    Returns:
        Advantages and returns (unnormalised advantage + value), both [S, B].

    Raises:
        AlgorithmError: No values, or shapes that differ.
    """
    if steps.values is None:
        raise AlgorithmError("compute_gae_advantages: gae needs values; give the model a value head.")
    rewards, loss_mask, values = steps.rewards, steps.loss_mask, steps.values
    (dones,) = steps.require("dones")
    followed_by = torch.zeros_like(rewards) if steps.bootstrap_values is None else steps.bootstrap_values
    require_same_shape(
        "compute_gae_advantages",
        rewards=rewards,
        dones=dones,
        loss_mask=loss_mask,
        bootstrap_values=followed_by,
        values_without_last_row=values[:-1],
    )
    advantages = torch.zeros_like(values[:-1], dtype=torch.promote_types(values.dtype, rewards.dtype))
    next_value, next_advantage = values[-1], torch.zeros_like(values[-1])
    for t in reversed(range(rewards.shape[0])):
        successor = torch.where(dones[t], followed_by[t], next_value)
        carried = torch.where(dones[t], torch.zeros_like(next_advantage), next_advantage)
        advantage = rewards[t] + cfg.gamma * successor - values[t] + cfg.gamma * cfg.gae_lambda * carried
        advantages[t] = torch.where(loss_mask[t], advantage, advantages[t])
        next_advantage = torch.where(loss_mask[t], advantage, next_advantage)
        next_value = torch.where(loss_mask[t], values[t], next_value)
    returns = torch.where(loss_mask, advantages + values[:-1], torch.zeros_like(advantages))
    if cfg.normalize_advantages:
        advantages = normalize_masked(advantages, loss_mask, steps.all_reduce)
    return advantages, returns
