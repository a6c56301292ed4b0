"""PPO with a value function, on samples of several older policies."""

from __future__ import annotations

from dataclasses import replace

import torch

from rlinf.algorithms.kl import MAX_LOG_RATIO
from rlinf.algorithms.losses.actor_critic import actor_critic_loss
from rlinf.algorithms.losses.inputs import LossInputs, LossOutput
from rlinf.algorithms.types import at_least_float32
from rlinf.config.schema.algorithm import DecoupledActorCriticLossConfig


def decoupled_actor_critic_loss(inputs: LossInputs, cfg: DecoupledActorCriticLossConfig) -> LossOutput:
    """Return w times PPO's loss around the proximal policy, with w = min(proximal / old, threshold), a constant.

    The ratio that is clipped is that of the current to the proximal policy, the one at the start of the update; w
    corrects for the policy that acted. After Hilton et al., arXiv 2110.00641, Eq. 2, as used on stale samples by Fu et
    al. (AReaL), arXiv 2505.24298, Eq. 5. The weight is truncated at ``behave_weight_threshold``, unlike that of the KL
    estimator ``k3_unbiased``, whose expected gradient would no longer be that of the KL. Where the proximal policy is
    the one that acted, this is ``actor_critic_loss``.

    Args:
        inputs: With those of ``actor_critic_loss``, and ``proximal_logprobs``.
        cfg: Clip ratios and ``behave_weight_threshold``.

    Returns:
        The loss, with the metrics of ``ppo_loss`` (of current against proximal policy), ``actor_behave_weight``,
        ``actor_behave_approx_kl`` (k3 of old against proximal policy) and ``actor_behave_clip_fraction``.
    """
    old, proximal, advantages = inputs.require("old_logprobs", "proximal_logprobs", "advantages")
    difference = (at_least_float32(proximal) - old).detach()
    log_weight = torch.where(inputs.loss_mask, difference, torch.zeros_like(difference))
    exact = torch.exp(log_weight.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    weight = exact.clamp(max=cfg.behave_weight_threshold)
    # Every term of PPO's loss is linear in the advantage, and weights are positive.
    output = actor_critic_loss(replace(inputs, old_logprobs=proximal, advantages=weight * advantages), cfg)
    metrics = {
        "actor_behave_weight": weight,
        "actor_behave_approx_kl": exact - 1 - log_weight,
        "actor_behave_clip_fraction": (exact > cfg.behave_weight_threshold).to(weight),
    }
    return replace(output, metrics={**output.metrics, **metrics})
