"""Clipped importance-sampling policy optimisation: the weight is clipped, the gradient never dropped."""

from __future__ import annotations

import torch

from rlinf.algorithms.aggregation import LossDenominators
from rlinf.algorithms.kl import MAX_LOG_RATIO
from rlinf.algorithms.losses.terms import approximate_kl, masked_log_ratio, regularized_loss
from rlinf.algorithms.types import Metrics, at_least_float32, masked_metrics, require_same_shape


def cispo_loss(
    *,
    logprobs: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    loss_mask: torch.Tensor,
    denominators: LossDenominators,
    clip_ratio_low: float,
    clip_ratio_high: float,
    loss_agg_func: str,
    entropy_bonus: float,
    kl_beta: float,
    kl_penalty: str,
    entropy: torch.Tensor | None = None,
    entropy_mask: torch.Tensor | None = None,
    ref_logprobs: torch.Tensor | None = None,
    sequence_ids: torch.Tensor | None = None,
) -> tuple[torch.Tensor, Metrics]:
    """Compute the loss of MiniMax, arXiv 2506.13585, Eq. 4-5: - clip(ratio) * advantage * log-probability.

    The clipped ratio is a constant weight, so that also tokens outside the bounds keep a gradient, bounded in size. At
    ``clip_ratio_low`` 1 there is no lower bound, as in the paper. Entropy and divergence are those of ``actor_loss``.

    Args:
        logprobs: See ``actor_loss``; likewise all that is not listed here.
        old_logprobs: See ``actor_loss``.
        advantages: See ``actor_loss``.
        loss_mask: See ``actor_loss``.
        denominators: See ``actor_loss``.
        clip_ratio_low: Weights are at least 1 - this.
        clip_ratio_high: Weights are at most 1 + this.
        loss_agg_func: See ``actor_loss``; the paper's is ``token-mean``.
        entropy_bonus: See ``actor_loss``.
        kl_beta: See ``actor_loss``.
        kl_penalty: See ``actor_loss``.
        entropy: See ``actor_loss``.
        entropy_mask: See ``actor_loss``.
        ref_logprobs: See ``actor_loss``.
        sequence_ids: See ``actor_loss``.

    Returns:
        Scalar loss, and the metrics of ``actor_loss``; ``actor_clip_fraction`` counts bounded weights.

    Raises:
        AlgorithmError: Shapes that differ, or a weight without its tensor.
    """
    require_same_shape(
        "cispo_loss",
        logprobs=logprobs,
        old_logprobs=old_logprobs,
        advantages=advantages,
        loss_mask=loss_mask,
        ref_logprobs=ref_logprobs,
    )
    log_ratio = masked_log_ratio(logprobs, old_logprobs, loss_mask).detach()
    ratio = torch.exp(log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    weight = ratio.clamp(1 - clip_ratio_low, 1 + clip_ratio_high)
    kept = torch.where(loss_mask, at_least_float32(logprobs), torch.zeros_like(ratio))
    per_entry = -weight * torch.where(loss_mask, advantages, torch.zeros_like(advantages)).detach() * kept
    metrics = masked_metrics(
        loss_mask,
        actor_ratio=ratio,
        actor_approx_kl=approximate_kl(log_ratio),
        actor_clip_fraction=(weight != ratio).to(ratio),
    )
    loss, shared = regularized_loss(
        per_entry,
        name="cispo_loss",
        logprobs=logprobs,
        old_logprobs=old_logprobs,
        loss_mask=loss_mask,
        denominators=denominators,
        loss_agg_func=loss_agg_func,
        entropy_bonus=entropy_bonus,
        kl_beta=kl_beta,
        kl_penalty=kl_penalty,
        entropy=entropy,
        entropy_mask=entropy_mask,
        ref_logprobs=ref_logprobs,
        sequence_ids=sequence_ids,
    )
    return loss, metrics | shared
