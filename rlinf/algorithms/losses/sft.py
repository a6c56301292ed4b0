"""Supervised fine-tuning: the negative log-likelihood of given answers."""

from __future__ import annotations

import torch

from rlinf.algorithms.aggregation import LossDenominators, aggregate_loss
from rlinf.algorithms.losses.terms import loss_metric
from rlinf.algorithms.types import Metrics, at_least_float32, masked_metrics, require_same_shape


def sft_loss(
    *,
    logprobs: torch.Tensor,
    loss_mask: torch.Tensor,
    denominators: LossDenominators,
    loss_agg_func: str,
    entropy: torch.Tensor,
    sequence_ids: torch.Tensor | None = None,
) -> tuple[torch.Tensor, Metrics]:
    """Compute a micro-batch's part of - log-probability.

    Args:
        logprobs: [N, L] of text, or [T] of packed text; with gradient.
        loss_mask: bool, same shape: the tokens that are learned; entries outside may be anything.
        denominators: Counts over the update batch.
        loss_agg_func: See ``aggregate_loss``.
        entropy: Same shape; reported.
        sequence_ids: int64 [T] for packed text, see ``aggregate_loss``; None for rows.

    Returns:
        Scalar loss, and metrics as (sum, count) pairs: ``loss``, ``token_loss`` (the mean over tokens, however the loss
        is aggregated) and ``entropy``.

    Raises:
        AlgorithmError: Shapes that differ.
    """
    require_same_shape("sft_loss", logprobs=logprobs, loss_mask=loss_mask, entropy=entropy)
    per_token = -at_least_float32(logprobs)
    loss = aggregate_loss(
        per_token,
        loss_mask,
        loss_agg_func=loss_agg_func,
        denominators=denominators.policy,
        sequence_ids=sequence_ids,
    )
    metrics = masked_metrics(loss_mask, token_loss=per_token, entropy=entropy)
    return loss, {"loss": loss_metric(loss, loss_mask, denominators), **metrics}
