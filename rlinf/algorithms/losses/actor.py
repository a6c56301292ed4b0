"""The clipped policy objective of PPO, with dual clip, entropy bonus and divergence from a reference."""

from __future__ import annotations

import torch

from rlinf.algorithms.aggregation import LossDenominators, aggregate_loss
from rlinf.algorithms.kl import MAX_LOG_RATIO, estimate_kl
from rlinf.algorithms.types import (
    Metrics,
    at_least_float32,
    masked_metric,
    masked_metrics,
    metric_pair,
    require_same_shape,
)
from rlinf.errors import AlgorithmError


def actor_loss(
    *,
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    loss_mask: torch.Tensor,
    denominators: LossDenominators,
    clip_ratio_low: float,
    clip_ratio_high: float,
    clip_ratio_c: float | None,
    loss_agg_func: str,
    entropy_bonus: float,
    kl_beta: float,
    kl_penalty: str,
    entropy: torch.Tensor | None = None,
    entropy_mask: torch.Tensor | None = None,
    ref_logprobs: torch.Tensor | None = None,
) -> tuple[torch.Tensor, Metrics]:
    """Compute a micro-batch's part of policy loss - entropy_bonus * entropy + kl_beta * KL(current || reference).

    Clipping after Schulman et al., arXiv 1707.06347, Eq. 7; dual clip after Ye et al., arXiv 1912.09729, Eq. 5. The
    entropy is a mean over valid entries whatever ``loss_agg_func``; the divergence is aggregated like the policy loss.

    Args:
        logprobs: [N, ...] of the current policy, with gradient; one level of ``levels.py``, or [N, L] of text.
        old_logprobs: Same shape; of the policy that acted.
        advantages: Same shape.
        loss_mask: bool, same shape; entries outside may be anything.
        denominators: Counts over the update batch.
        clip_ratio_low: The ratio is clipped from below at 1 - this.
        clip_ratio_high: The ratio is clipped from above at 1 + this.
        clip_ratio_c: Bounds the loss of negative advantages at -this * advantage; None does not.
        loss_agg_func: See ``aggregate_loss``.
        entropy_bonus: Weight of the entropy.
        kl_beta: Weight of the divergence.
        kl_penalty: Its estimator, see ``kl.py``.
        entropy: [N, ...], with gradient; may be at another level than ``logprobs``. Required with an entropy bonus.
        entropy_mask: bool, shape of ``entropy``; None takes ``loss_mask``.
        ref_logprobs: Shape of ``logprobs``; of the reference policy. Required with ``kl_beta``.

    Returns:
        Scalar loss, and metrics as (sum, count) pairs: ``actor_loss`` (the policy part alone), ``total_loss``,
        ``actor_ratio``, ``actor_approx_kl`` (k3 of old against current), ``actor_clip_fraction``,
        ``actor_dual_clip_fraction``, ``actor_entropy``, ``actor_kl_ref``.

    Raises:
        AlgorithmError: Shapes that differ, or a weight without its tensor.
    """
    require_same_shape(
        "actor_loss",
        logprobs=logprobs,
        old_logprobs=old_logprobs,
        advantages=advantages,
        loss_mask=loss_mask,
        ref_logprobs=ref_logprobs,
    )
    per_entry, metrics = _clipped_objective(
        logprobs, old_logprobs, advantages, loss_mask, (clip_ratio_low, clip_ratio_high, clip_ratio_c)
    )
    loss = aggregate_loss(per_entry, loss_mask, loss_agg_func=loss_agg_func, denominators=denominators.policy)
    metrics["actor_loss"] = loss_metric(loss, loss_mask, denominators)

    mean_entropy, metrics["actor_entropy"] = _entropy(entropy, entropy_mask, loss_mask, denominators)
    if entropy_bonus > 0:
        if mean_entropy is None:
            raise AlgorithmError("actor_loss: entropy_bonus > 0 needs 'entropy'; let the model return it.")
        loss = loss - entropy_bonus * mean_entropy

    divergence, metrics["actor_kl_ref"] = _divergence(logprobs, ref_logprobs, loss_mask, kl_penalty)
    if kl_beta > 0:
        if divergence is None:
            raise AlgorithmError("actor_loss: kl_beta > 0 needs 'ref_logprobs' of the reference policy.")
        loss = loss + kl_beta * aggregate_loss(
            divergence, loss_mask, loss_agg_func=loss_agg_func, denominators=denominators.policy
        )
    metrics["total_loss"] = loss_metric(loss, loss_mask, denominators)
    return loss, metrics


def loss_metric(loss: torch.Tensor, loss_mask: torch.Tensor, denominators: LossDenominators) -> torch.Tensor:
    """Return the pair of a micro-batch's part of a loss: added up over an update batch it is (its loss, 1).

    Args:
        loss: Scalar, scaled by the data-parallel size as ``aggregate_loss`` returns it.
        loss_mask: The policy's mask of the micro-batch.
        denominators: Counts over the update batch.
    """
    return metric_pair(loss / denominators.policy.data_parallel_size, denominators.policy.share(loss_mask))


def _clipped_objective(
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    clip: tuple[float, float, float | None],
) -> tuple[torch.Tensor, Metrics]:
    """Return the loss of each entry and what was clipped; entries outside the mask have ratio 1."""
    low, high, dual = clip
    difference = at_least_float32(logprobs) - old_logprobs.detach()
    log_ratio = torch.where(mask, difference, torch.zeros_like(difference))
    ratio = torch.exp(log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    advantages = torch.where(mask, advantages, torch.zeros_like(advantages)).detach()
    unclipped = -advantages * ratio
    clipped = -advantages * ratio.clamp(1 - low, 1 + high)
    loss = torch.maximum(unclipped, clipped)
    is_clipped = clipped > unclipped
    is_dual_clipped = torch.zeros_like(mask)
    if dual is not None:
        bound = -advantages * dual
        is_dual_clipped = (advantages < 0) & (loss > bound)
        loss = torch.where(is_dual_clipped, bound, loss)
    exact = log_ratio.detach()
    return loss, masked_metrics(
        mask,
        actor_ratio=ratio,
        actor_approx_kl=torch.exp(exact.clamp(max=MAX_LOG_RATIO)) - 1 - exact,
        actor_clip_fraction=is_clipped.to(ratio),
        actor_dual_clip_fraction=is_dual_clipped.to(ratio),
    )


def _entropy(
    entropy: torch.Tensor | None,
    entropy_mask: torch.Tensor | None,
    loss_mask: torch.Tensor,
    denominators: LossDenominators,
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Return the micro-batch's part of the mean entropy, and its metric; (None, an empty metric) without one."""
    if entropy is None:
        return None, torch.zeros(2, device=loss_mask.device)
    mask = loss_mask if entropy_mask is None else entropy_mask
    mean = aggregate_loss(entropy, mask, loss_agg_func="token-mean", denominators=denominators.entropy)
    return mean, masked_metric(entropy, mask)


def _divergence(
    logprobs: torch.Tensor, ref_logprobs: torch.Tensor | None, mask: torch.Tensor, kind: str
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Return KL(current || reference) of each entry, 0 outside the mask, and its metric."""
    if ref_logprobs is None:
        return None, torch.zeros(2, device=mask.device)
    # Masked before the exponential: an infinite value outside the mask would poison the gradient.
    kept = torch.where(mask, logprobs, torch.zeros_like(logprobs))
    divergence = estimate_kl(kept, torch.where(mask, ref_logprobs, torch.zeros_like(ref_logprobs)), kind)
    return divergence, masked_metric(divergence, mask)
