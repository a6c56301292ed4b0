"""An advantage estimator and a policy loss: pure functions; their dataclasses list the keys they take from recipes."""

from dataclasses import dataclass
from typing import Any

import torch

from rlinf.algorithms.losses.inputs import LossOutput
from rlinf.config.schema.algorithm import AdvantageConfig, PolicyLossConfig


@dataclass(frozen=True, kw_only=True)
class CenteredConfig(AdvantageConfig):
    """Keys of ``adv_type: centered``."""

    scale: float = 1.0
    """Factor on the advantages."""


def compute_centered_advantages(steps: Any, cfg: Any) -> tuple[Any, Any]:
    """Compare what follows each step of an episode with what followed it in the others.

    Args:
        steps: ``Steps`` of B environments, which all started an episode at the first.
        cfg: ``CenteredConfig``.

    Returns:
        Advantages and returns, both [S, B].
    """
    rewards = steps.rewards * steps.loss_mask
    returns = rewards.flip(0).cumsum(0).flip(0)
    centered = returns - returns.mean(1, keepdim=True)
    return cfg.scale * centered / returns.std(1, keepdim=True).clamp(min=1e-6) * steps.loss_mask, returns


@dataclass(frozen=True, kw_only=True)
class RatioPenaltyConfig(PolicyLossConfig):
    """Keys of ``loss_type: ratio_penalty``."""

    penalty: float = 1.0
    """Weight of the squared distance of the policy ratio from 1."""


def ratio_penalty_loss(inputs: Any, cfg: Any) -> LossOutput:
    """Climb the advantages and pay for moving away, rather than clip the ratio.

    Args:
        inputs: ``LossInputs``, the tensors of a micro-batch.
        cfg: ``RatioPenaltyConfig``.

    Returns:
        ``LossOutput``: the loss of each entry, and what is reported of each.
    """
    ratio = torch.exp(inputs.log_ratio())
    loss = -inputs.masked("advantages") * ratio + cfg.penalty * (ratio - 1) ** 2
    return LossOutput(loss, {"actor_ratio": ratio})
