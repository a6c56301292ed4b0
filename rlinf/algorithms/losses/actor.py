"""The clipped policy objective of PPO, with dual clip, entropy bonus and divergence from a reference."""

from __future__ import annotations

import torch

from rlinf.algorithms.aggregation import LossDenominators
from rlinf.algorithms.losses.terms import clipped_objective, masked_log_ratio, regularized_loss
from rlinf.algorithms.types import Metrics, require_same_shape


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
    sequence_ids: torch.Tensor | None = None,
    behaviour_logprobs: torch.Tensor | None = None,
) -> tuple[torch.Tensor, Metrics]:
    """Compute a micro-batch's part of policy loss - entropy_bonus * entropy + kl_beta * KL(current || reference).

    Clipping after Schulman et al., arXiv 1707.06347, Eq. 7; dual clip after Ye et al., arXiv 1912.09729, Eq. 5. The
    entropy is a mean over valid entries whatever ``loss_agg_func``; the divergence is aggregated like the policy loss.

    Args:
        logprobs: [N, ...] of the current policy, with gradient; one level of ``levels.py``, [N, L] of text, or [T] of
            packed text.
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
        sequence_ids: int64 [T] for packed text, see ``aggregate_loss``; None for rows.
        behaviour_logprobs: Shape of ``logprobs``; of the policy that acted where ``old_logprobs`` are of another one.
            ``kl_penalty: k3_unbiased`` is weighted by current / behaviour; None takes ``old_logprobs``.

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
        behaviour_logprobs=behaviour_logprobs,
    )
    log_ratio = masked_log_ratio(logprobs, old_logprobs, loss_mask)
    clip = (clip_ratio_low, clip_ratio_high, clip_ratio_c)
    per_entry, metrics = clipped_objective(log_ratio, advantages, loss_mask, clip)
    loss, shared = regularized_loss(
        per_entry,
        name="actor_loss",
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
        behaviour_logprobs=behaviour_logprobs,
    )
    return loss, metrics | shared
