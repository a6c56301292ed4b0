"""From a rollout to what a loss learns from: one call for the whole path from trajectory to samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from rlinf.algorithms.filtering import filter_by_config
from rlinf.algorithms.preprocess import Steps, rows_to_samples, steps_to_samples, trajectory_to_steps
from rlinf.algorithms.registry import calculate_adv_and_returns
from rlinf.algorithms.types import AllReduce, Metrics, masked_metric, metric_pair
from rlinf.data.embodied import Trajectory


@dataclass(frozen=True, slots=True)
class Targets:
    """What a loss needs besides the model's outputs, per sample; sample ``b * T + t`` is chunk step t of trajectory b.

    Attributes:
        advantages: float [N, K].
        returns: float [N, K].
        prev_values: float [N, K], predicted during the rollout; None without a value head.
        value_mask: bool [N, K]; which of these entries count.
        action_mask: bool [N, C]; executed actions of trajectories that were not filtered out. ``mask_at_level`` makes
            the masks of log-probabilities and entropies from it.
    """

    advantages: torch.Tensor
    returns: torch.Tensor
    prev_values: torch.Tensor | None
    value_mask: torch.Tensor
    action_mask: torch.Tensor


def compute_targets(
    trajectory: Trajectory,
    *,
    adv_type: str,
    adv_config: Mapping[str, Any],
    reward_type: str,
    bootstrap_type: str,
    all_reduce: AllReduce | None = None,
) -> tuple[Targets, Metrics]:
    """Compute advantages and returns of a rank's whole rollout and lay them out as samples.

    Args:
        trajectory: All that this rank learns from in this step (several rollout epochs joined along B, with distinct
            group ids), so that normalisation happens once.
        adv_type: Registered advantage estimator.
        adv_config: Fields of its config dataclass; ``filter_rewards`` and its bounds are applied here.
        reward_type: ``chunk_level`` or ``action_level``.
        bootstrap_type: ``standard`` or ``always``.
        all_reduce: Sum over data-parallel ranks; None on one rank.

    Returns:
        The targets, and metrics as (sum, count) pairs: ``advantage``, ``return``, ``score`` (sum of a trajectory's
        rewards) and ``filtered_fraction`` (of trajectories).

    Raises:
        RegistryError: An unknown ``adv_type``.
        AlgorithmError: Tensors or keys that do not fit.
    """
    steps = trajectory_to_steps(trajectory, reward_type=reward_type, bootstrap_type=bootstrap_type)
    loss_mask = filter_by_config(
        rewards=steps.rewards, loss_mask=steps.loss_mask, group_ids=steps.group_ids, adv_config=adv_config
    )
    advantages, returns = calculate_adv_and_returns(
        adv_type,
        **{
            **adv_config,
            "rewards": steps.rewards,
            "values": steps.values,
            "bootstrap_values": steps.bootstrap_values,
            "dones": steps.dones,
            "loss_mask": loss_mask,
            "group_ids": steps.group_ids,
            "all_reduce": all_reduce,
        },
    )
    num_chunk_steps = trajectory.num_steps
    kept = loss_mask.any(dim=0)
    targets = Targets(
        advantages=steps_to_samples(advantages, num_chunk_steps),
        returns=steps_to_samples(returns, num_chunk_steps),
        prev_values=None if steps.values is None else steps_to_samples(steps.values[:-1], num_chunk_steps),
        value_mask=steps_to_samples(loss_mask, num_chunk_steps),
        action_mask=rows_to_samples(trajectory.executed & kept.unsqueeze(-1)),
    )
    return targets, _metrics(steps, loss_mask, advantages, returns)


def _metrics(steps: Steps, loss_mask: torch.Tensor, advantages: torch.Tensor, returns: torch.Tensor) -> Metrics:
    played, kept = steps.loss_mask.any(dim=0), loss_mask.any(dim=0)
    scores = steps.rewards.sum(dim=0)
    return {
        "advantage": masked_metric(advantages, loss_mask),
        "return": masked_metric(returns, loss_mask),
        "score": masked_metric(scores, played),
        "filtered_fraction": metric_pair((played & ~kept).sum().to(scores), played.sum()),
    }
