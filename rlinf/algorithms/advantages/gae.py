"""Generalised advantage estimation."""

from __future__ import annotations

import torch

from rlinf.algorithms.statistics import normalize_masked
from rlinf.algorithms.types import AllReduce, require_same_shape
from rlinf.errors import AlgorithmError


def compute_gae_advantages(
    *,
    rewards: torch.Tensor,
    values: torch.Tensor | None,
    bootstrap_values: torch.Tensor | None = None,
    dones: torch.Tensor,
    loss_mask: torch.Tensor,
    gamma: float,
    gae_lambda: float,
    normalize_advantages: bool,
    all_reduce: AllReduce | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute advantages after Schulman et al., arXiv 1506.02438, Eq. 16.

    A done cuts the recursion. Behind it follows ``bootstrap_values``, which equals adding gamma * V(last state) to the
    reward of the step that was truncated. Invalid steps are passed over: the step before one is followed by the step
    after it.

    Args:
        rewards: [S, B].
        values: [S + 1, B]; the last row belongs to the state after the last step.
        bootstrap_values: [S, B]; value of what would have followed a done; None is 0 throughout.
        dones: bool [S, B]; true at the last step of an episode.
        loss_mask: bool [S, B]; false for steps that were not executed.
        gamma: Discount per step.
        gae_lambda: Weight of longer estimates.
        normalize_advantages: Normalise over all valid steps of all ranks.
        all_reduce: Sum over data-parallel ranks; None on one rank.

    Returns:
        Advantages and returns (unnormalised advantage + value), both [S, B].

    Raises:
        AlgorithmError: No values, or shapes that differ.
    """
    if values is None:
        raise AlgorithmError("compute_gae_advantages: gae needs values; give the model a value head.")
    followed_by = torch.zeros_like(rewards) if bootstrap_values is None else bootstrap_values
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
        advantage = rewards[t] + gamma * successor - values[t] + gamma * gae_lambda * carried
        advantages[t] = torch.where(loss_mask[t], advantage, advantages[t])
        next_advantage = torch.where(loss_mask[t], advantage, next_advantage)
        next_value = torch.where(loss_mask[t], values[t], next_value)
    returns = torch.where(loss_mask, advantages + values[:-1], torch.zeros_like(advantages))
    if normalize_advantages:
        advantages = normalize_masked(advantages, loss_mask, all_reduce)
    return advantages, returns
