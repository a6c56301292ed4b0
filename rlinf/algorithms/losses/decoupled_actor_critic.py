"""The actor's and the critic's loss on samples of several older policies."""

from __future__ import annotations

from typing import Any

import torch

from rlinf.algorithms.kl import MAX_LOG_RATIO
from rlinf.algorithms.losses.actor_critic import actor_critic_loss
from rlinf.algorithms.types import Metrics, at_least_float32, masked_metrics, require_same_shape


def decoupled_actor_critic_loss(
    *,
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    proximal_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    loss_mask: torch.Tensor,
    behave_weight_threshold: float,
    **others: Any,
) -> tuple[torch.Tensor, Metrics]:
    """Compute ``actor_critic_loss`` with the policy that acted told apart from the one that updates stay close to.

    The ratio that is clipped is that of the current to the proximal policy, the one at the start of the update; each
    entry is weighed with proximal / behaviour, a constant, which corrects for the policy that acted. After Hilton et
    al., arXiv 2110.00641, Eq. 2, as used on stale samples by Fu et al. (AReaL), arXiv 2505.24298, Eq. 5. The weight is
    truncated at ``behave_weight_threshold``, unlike that of the divergence's estimator ``k3_unbiased``, whose expected
    gradient would no longer be the divergence's. Where the proximal policy is the one that acted, this is
    ``actor_critic_loss``.

    Args:
        logprobs: [N, ...] of the current policy, with gradient.
        old_logprobs: Same shape; of the policies that acted.
        proximal_logprobs: Same shape; of the policy at the start of the update.
        advantages: Same shape.
        loss_mask: bool, same shape; entries outside may be anything.
        behave_weight_threshold: Largest weight of an entry.
        **others: The other arguments of ``actor_critic_loss``.

    Returns:
        Scalar loss, and the metrics of ``actor_critic_loss`` (ratio, divergence and clipping are those of current
        against proximal policy) with ``actor_behave_weight``, ``actor_behave_approx_kl`` (k3 of behaviour against
        proximal policy) and ``actor_behave_clip_fraction``.

    Raises:
        AlgorithmError: Shapes that differ, no values, or a weight without its tensor.
    """
    require_same_shape(
        "decoupled_actor_critic_loss",
        logprobs=logprobs,
        old_logprobs=old_logprobs,
        proximal_logprobs=proximal_logprobs,
        advantages=advantages,
        loss_mask=loss_mask,
    )
    difference = (at_least_float32(proximal_logprobs) - old_logprobs).detach()
    log_weight = torch.where(loss_mask, difference, torch.zeros_like(difference))
    exact = torch.exp(log_weight.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    weight = exact.clamp(max=behave_weight_threshold)
    # Every term of the clipped objective is linear in the advantage, and weights are positive.
    loss, metrics = actor_critic_loss(
        logprobs=logprobs,
        old_logprobs=proximal_logprobs,
        behaviour_logprobs=old_logprobs,
        advantages=weight * advantages,
        loss_mask=loss_mask,
        **others,
    )
    metrics |= masked_metrics(
        loss_mask,
        actor_behave_weight=weight,
        actor_behave_approx_kl=exact - 1 - log_weight,
        actor_behave_clip_fraction=(exact > behave_weight_threshold).to(weight),
    )
    return loss, metrics
