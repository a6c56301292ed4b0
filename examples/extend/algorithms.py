"""An advantage estimator and a policy loss: pure functions; their dataclasses list the keys they take from recipes."""

from dataclasses import dataclass

import torch

from rlinf.algorithms.aggregation import aggregate_loss
from rlinf.algorithms.types import masked_metrics
from rlinf.config.schema.algorithm import AdvantageConfig, LossConfig


@dataclass(frozen=True, kw_only=True)
class CenteredConfig(AdvantageConfig):
    """Keys of ``adv_type: centered``."""

    scale: float = 1.0
    """Factor on the advantages."""


def compute_centered_advantages(*, rewards, loss_mask, scale):
    """Compare what follows each step of an episode with what followed it in the others.

    Args:
        rewards: float [S, B]; S steps of B environments, which all started an episode at the first.
        loss_mask: bool [S, B]; steps that count: until the episode ended.
        scale: Factor.

    Returns:
        Advantages and returns, both [S, B].
    """
    rewards = rewards * loss_mask
    returns = rewards.flip(0).cumsum(0).flip(0)
    centered = returns - returns.mean(1, keepdim=True)
    return scale * centered / returns.std(1, keepdim=True).clamp(min=1e-6) * loss_mask, returns


@dataclass(frozen=True, kw_only=True)
class RatioPenaltyConfig(LossConfig):
    """Keys of ``loss_type: ratio_penalty``."""

    penalty: float = 1.0
    """Weight of the squared distance of the policy ratio from 1."""


def ratio_penalty_loss(*, logprobs, old_logprobs, advantages, loss_mask, denominators, penalty):
    """Climb the advantages and pay for moving away, rather than clip the ratio.

    Args:
        logprobs: float [N, ...] of the current policy, with gradient.
        old_logprobs: The same shape; of the policy that acted.
        advantages: The same shape.
        loss_mask: bool, the same shape.
        denominators: Counts over the whole update batch, so that micro-batches and ranks do not change the gradient.
        penalty: Weight.

    Returns:
        The micro-batch's part of the loss, and metrics as (sum, count) pairs.
    """
    ratio = torch.exp(torch.where(loss_mask, logprobs - old_logprobs, 0.0))
    objective = -advantages * ratio + penalty * (ratio - 1) ** 2
    loss = aggregate_loss(objective, loss_mask, loss_agg_func="token-mean", denominators=denominators.policy)
    return loss, masked_metrics(loss_mask, actor_loss=objective, actor_ratio=ratio)
