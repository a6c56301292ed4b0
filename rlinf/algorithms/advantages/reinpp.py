"""REINFORCE++ and its variant with a group baseline."""

from __future__ import annotations

import torch

from rlinf.algorithms.statistics import GroupStatistics, normalize_masked
from rlinf.algorithms.steps import Steps
from rlinf.algorithms.types import require_same_shape
from rlinf.config.schema.algorithm import ReinPPBaselineConfig, ReinPPConfig


def compute_reinpp_advantages(steps: Steps, cfg: ReinPPConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Take the discounted return from each step on, normalised over the whole batch (Hu, arXiv 2501.03262, Eq. 5-6).

    The KL from the reference, part of the reward in the paper, is subtracted from text's rewards before this
    (``kl_in_reward``); elsewhere it is part of the loss (``kl_beta``).

    Args:
        steps: With ``dones``.
        cfg: ``gamma`` per step; ``normalize_advantages`` over all valid steps of all ranks.

    Returns:
        Advantages and returns (from each step on), both [S, B].
    """
    (dones,) = steps.require("dones")
    returns = returns_to_go(steps.rewards, dones, steps.loss_mask, cfg.gamma)
    if not cfg.normalize_advantages:
        return returns.clone(), returns
    return normalize_masked(returns, steps.loss_mask, steps.all_reduce), returns


def compute_reinpp_baseline_advantages(steps: Steps, cfg: ReinPPBaselineConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """As REINFORCE++, less the mean return of the trajectory's group (arXiv 2501.03262, REINFORCE++-baseline).

    The baseline is the group's mean of the return from the first valid step on. With gamma = 1 and one episode per
    trajectory that is the mean score, and with a reward at the end only this is the paper's estimator.

    Args:
        steps: With ``dones`` and ``group_ids``.
        cfg: As for REINFORCE++; normalised after the baseline.

    Returns:
        Advantages and returns (from each step on, without the baseline), both [S, B].
    """
    dones, group_ids = steps.require("dones", "group_ids")
    loss_mask = steps.loss_mask
    returns = returns_to_go(steps.rewards, dones, loss_mask, cfg.gamma)
    first_valid = loss_mask.int().argmax(dim=0, keepdim=True)
    from_start = returns.gather(0, first_valid).squeeze(0)
    baseline = GroupStatistics(group_ids, loss_mask.any(dim=0)).mean(from_start)
    advantages = torch.where(loss_mask, returns - baseline, torch.zeros_like(returns))
    if cfg.normalize_advantages:
        advantages = normalize_masked(advantages, loss_mask, steps.all_reduce)
    return advantages, returns


def returns_to_go(rewards: torch.Tensor, dones: torch.Tensor, loss_mask: torch.Tensor, gamma: float) -> torch.Tensor:
    """Sum discounted rewards along time, from each step to the end of its episode.

    Args:
        rewards: [S, B].
        dones: bool [S, B]; true at the last step of an episode.
        loss_mask: bool [S, B]; invalid steps are passed over, without a discount.
        gamma: Discount per step.

    Returns:
        [S, B], 0 at invalid steps.
    """
    require_same_shape("returns_to_go", rewards=rewards, dones=dones, loss_mask=loss_mask)
    returns = torch.zeros_like(rewards)
    following = torch.zeros_like(rewards[0])
    for t in reversed(range(rewards.shape[0])):
        onward = torch.where(dones[t], torch.zeros_like(following), following)
        total = rewards[t] + gamma * onward
        returns[t] = torch.where(loss_mask[t], total, returns[t])
        following = torch.where(loss_mask[t], total, following)
    return returns
