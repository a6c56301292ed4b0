"""Group sequence policy optimisation: the ratio that is clipped is the sequence's."""

from __future__ import annotations

import torch

from rlinf.algorithms.aggregation import LossDenominators
from rlinf.algorithms.losses.terms import approximate_kl, clipped_objective, masked_log_ratio, regularized_loss
from rlinf.algorithms.sequences import mean_over_sequences
from rlinf.algorithms.types import Metrics, masked_metric, require_same_shape


def gspo_loss(
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
    """Compute the loss of Zheng et al., arXiv 2507.18071, in the form of GSPO-token (Eq. 13-14).

    A sequence's ratio is the geometric mean of its tokens' (Eq. 7). Every token has this value and the gradient of its
    own log-probability, which with one advantage per sequence is the gradient of GSPO (Eq. 5) and also serves
    advantages that differ from token to token. Entropy and divergence are those of ``actor_loss``.

    Args:
        logprobs: [N, L], or packed [T]; otherwise as in ``actor_loss``, as is all that is not listed here.
        old_logprobs: See ``actor_loss``.
        advantages: See ``actor_loss``.
        loss_mask: See ``actor_loss``.
        denominators: See ``actor_loss``.
        clip_ratio_low: The sequence's ratio is clipped from below at 1 - this.
        clip_ratio_high: The sequence's ratio is clipped from above at 1 + this.
        loss_agg_func: See ``actor_loss``; the paper's is ``seq-mean-token-mean``.
        entropy_bonus: See ``actor_loss``.
        kl_beta: See ``actor_loss``.
        kl_penalty: See ``actor_loss``.
        entropy: See ``actor_loss``.
        entropy_mask: See ``actor_loss``.
        ref_logprobs: See ``actor_loss``.
        sequence_ids: See ``actor_loss``.

    Returns:
        Scalar loss, and the metrics of ``actor_loss``; ratio and clipping are those of sequences.

    Raises:
        AlgorithmError: Shapes that differ, or a weight without its tensor.
    """
    require_same_shape(
        "gspo_loss",
        logprobs=logprobs,
        old_logprobs=old_logprobs,
        advantages=advantages,
        loss_mask=loss_mask,
        ref_logprobs=ref_logprobs,
    )
    token_log_ratio = masked_log_ratio(logprobs, old_logprobs, loss_mask)
    sequence_log_ratio = mean_over_sequences(token_log_ratio.detach(), loss_mask, sequence_ids)
    kept = torch.where(loss_mask, sequence_log_ratio, torch.zeros_like(sequence_log_ratio))
    log_ratio = kept + (token_log_ratio - token_log_ratio.detach())
    per_entry, metrics = clipped_objective(log_ratio, advantages, loss_mask, (clip_ratio_low, clip_ratio_high, None))
    metrics["actor_approx_kl"] = masked_metric(approximate_kl(token_log_ratio), loss_mask)
    loss, shared = regularized_loss(
        per_entry,
        name="gspo_loss",
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
