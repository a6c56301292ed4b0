"""From steps in time to what a loss learns from: groups are filtered, rewards penalised, advantages estimated."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from rlinf.algorithms.filtering import filter_by_config
from rlinf.algorithms.registry import calculate_adv_and_returns
from rlinf.algorithms.steps import Steps
from rlinf.algorithms.types import Metrics, masked_metric, metric_pair
from rlinf.config.schema.algorithm import AdvantageConfig


@dataclass(frozen=True, slots=True)
class AdvantagesAndReturns:
    """What an estimator computed for each step; ``steps_to_samples`` and ``steps_to_ragged`` lay columns out anew.

    Attributes:
        advantages: float [S, B]; 0 outside the mask.
        returns: float [S, B]; what values are trained towards.
        loss_mask: bool [S, B]; that of the steps, all false for trajectories that were filtered out.
    """

    advantages: torch.Tensor
    returns: torch.Tensor
    loss_mask: torch.Tensor


def compute_advantages_and_returns(
    adv_type: str, steps: Steps, cfg: AdvantageConfig, *, selected: torch.Tensor | None = None
) -> tuple[AdvantagesAndReturns, Metrics]:
    """Compute advantages and returns of a rollout: trajectories of environments, or responses of a language model.

    Args:
        adv_type: Registered advantage estimator.
        steps: All that is learned from in this step of the run, whole groups, so that normalisation happens once.
        cfg: Keys of the estimator; its ``filter_rewards`` is applied here.
        selected: bool [B]; the trajectories that are learned from. None selects all.

    Returns:
        Advantages and returns, and metrics as (sum, count) pairs: ``advantage``, ``return``, ``score`` (sum of a
        trajectory's rewards), ``filtered_fraction`` (of trajectories) and, where there is a KL, ``kl_reward`` (its mean
        over steps).

    Raises:
        RegistryError: An unknown ``adv_type``.
        AlgorithmError: Tensors that do not fit.
    """
    played, scores = steps.loss_mask.any(dim=0), steps.rewards.sum(dim=0)
    kept = filter_by_config(steps, cfg)
    if selected is not None:
        kept = kept & selected
    metrics: Metrics = {}
    steps = replace(steps, loss_mask=kept)
    if steps.kl is not None:
        kl = torch.where(kept, steps.kl, torch.zeros_like(steps.kl))
        steps = replace(steps, rewards=steps.rewards - steps.kl_beta * kl)
        metrics["kl_reward"] = masked_metric(kl, kept)
    advantages, returns = calculate_adv_and_returns(adv_type, steps, cfg)
    metrics |= {
        "advantage": masked_metric(advantages, kept),
        "return": masked_metric(returns, kept),
        "score": masked_metric(scores, played),
        "filtered_fraction": metric_pair((played & ~kept.any(dim=0)).sum().to(scores), played.sum()),
    }
    return AdvantagesAndReturns(advantages, returns, kept), metrics
