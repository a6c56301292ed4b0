"""What the policy losses share: from the loss of each entry to one number, with entropy and divergence added."""

from __future__ import annotations

import torch

from rlinf.algorithms.aggregation import LossDenominators, aggregate_loss
from rlinf.algorithms.kl import MAX_LOG_RATIO, estimate_kl
from rlinf.algorithms.types import Metrics, at_least_float32, masked_metric, masked_metrics, metric_pair
from rlinf.errors import AlgorithmError


def regularized_loss(
    per_entry: torch.Tensor,
    *,
    name: str,
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    loss_mask: torch.Tensor,
    denominators: LossDenominators,
    loss_agg_func: str,
    entropy_bonus: float,
    kl_beta: float,
    kl_penalty: str,
    entropy: torch.Tensor | None = None,
    entropy_mask: torch.Tensor | None = None,
    ref_logprobs: torch.Tensor | None = None,
    sequence_ids: torch.Tensor | None = None,
    behaviour_logprobs: torch.Tensor | None = None,
) -> tuple[torch.Tensor, Metrics]:
    """Return a micro-batch's part of policy loss - entropy_bonus * entropy + kl_beta * KL(current || reference).

    Args:
        per_entry: Policy loss of each entry.
        name: Of the loss, for messages.
        logprobs: See ``actor_loss``; likewise all that is not listed here.
        old_logprobs: See ``actor_loss``.
        loss_mask: See ``actor_loss``.
        denominators: See ``actor_loss``.
        loss_agg_func: See ``actor_loss``.
        entropy_bonus: See ``actor_loss``.
        kl_beta: See ``actor_loss``.
        kl_penalty: See ``actor_loss``.
        entropy: See ``actor_loss``.
        entropy_mask: See ``actor_loss``.
        ref_logprobs: See ``actor_loss``.
        sequence_ids: See ``actor_loss``.
        behaviour_logprobs: See ``actor_loss``.

    Returns:
        Scalar loss, and the metrics ``actor_loss``, ``actor_entropy``, ``actor_kl_ref`` and ``total_loss``.

    Raises:
        AlgorithmError: A weight without its tensor.
    """
    loss = aggregate_loss(
        per_entry,
        loss_mask,
        loss_agg_func=loss_agg_func,
        denominators=denominators.policy,
        sequence_ids=sequence_ids,
    )
    metrics = {"actor_loss": loss_metric(loss, loss_mask, denominators)}
    mean_entropy, metrics["actor_entropy"] = _entropy(entropy, entropy_mask, loss_mask, denominators)
    if entropy_bonus > 0:
        if mean_entropy is None:
            raise AlgorithmError(f"{name}: entropy_bonus > 0 needs 'entropy'; let the model return it.")
        loss = loss - entropy_bonus * mean_entropy

    behaviour = old_logprobs if behaviour_logprobs is None else behaviour_logprobs
    divergence, metrics["actor_kl_ref"] = _divergence(logprobs, ref_logprobs, behaviour, loss_mask, kl_penalty)
    if kl_beta > 0:
        if divergence is None:
            raise AlgorithmError(f"{name}: kl_beta > 0 needs 'ref_logprobs' of the reference policy.")
        loss = loss + kl_beta * aggregate_loss(
            divergence,
            loss_mask,
            loss_agg_func=loss_agg_func,
            denominators=denominators.policy,
            sequence_ids=sequence_ids,
        )
    metrics["total_loss"] = loss_metric(loss, loss_mask, denominators)
    return loss, metrics


def masked_log_ratio(logprobs: torch.Tensor, old_logprobs: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return log(current / old) of each entry, with the current policy's gradient, and 0 outside the mask."""
    difference = at_least_float32(logprobs) - old_logprobs.detach()
    return torch.where(mask, difference, torch.zeros_like(difference))


def clipped_objective(
    log_ratio: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    clip: tuple[float, float, float | None],
) -> tuple[torch.Tensor, Metrics]:
    """Return the loss of each entry, clipped as in PPO, and what was clipped.

    Args:
        log_ratio: Of current to old policy, with gradient; 0 outside the mask.
        advantages: Same shape.
        mask: bool, same shape.
        clip: ``clip_ratio_low``, ``clip_ratio_high`` and ``clip_ratio_c``.

    Returns:
        The losses, and the metrics ``actor_ratio``, ``actor_approx_kl``, ``actor_clip_fraction`` and
        ``actor_dual_clip_fraction``.
    """
    low, high, dual = clip
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
    return loss, masked_metrics(
        mask,
        actor_ratio=ratio,
        actor_approx_kl=approximate_kl(log_ratio),
        actor_clip_fraction=is_clipped.to(ratio),
        actor_dual_clip_fraction=is_dual_clipped.to(ratio),
    )


def approximate_kl(log_ratio: torch.Tensor) -> torch.Tensor:
    """Return k3 of the old against the current policy, from log(current / old); without a gradient."""
    exact = log_ratio.detach()
    return torch.exp(exact.clamp(max=MAX_LOG_RATIO)) - 1 - exact


def loss_metric(loss: torch.Tensor, loss_mask: torch.Tensor, denominators: LossDenominators) -> torch.Tensor:
    """Return the pair of a micro-batch's part of a loss: added up over an update batch it is (its loss, 1).

    Args:
        loss: Scalar, scaled by the data-parallel size as ``aggregate_loss`` returns it.
        loss_mask: The policy's mask of the micro-batch.
        denominators: Counts over the update batch.
    """
    return metric_pair(loss / denominators.policy.data_parallel_size, denominators.policy.share(loss_mask))


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
    logprobs: torch.Tensor,
    ref_logprobs: torch.Tensor | None,
    behaviour_logprobs: torch.Tensor,
    mask: torch.Tensor,
    kind: str,
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Return KL(current || reference) of each entry, 0 outside the mask, and its metric."""
    if ref_logprobs is None:
        return None, torch.zeros(2, device=mask.device)
    # Masked before the exponential: an infinite value outside the mask would poison the gradient.
    given = (logprobs, ref_logprobs, behaviour_logprobs)
    kept, reference, behaviour = (torch.where(mask, p, torch.zeros_like(p)) for p in given)
    divergence = estimate_kl(kept, reference, kind, behaviour)
    return divergence, masked_metric(divergence, mask)
