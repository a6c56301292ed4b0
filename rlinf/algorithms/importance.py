"""Importance weights for the mismatch between the probabilities of the generation engine and of the trainer.

An engine runs other kernels, often in lower precision, and perhaps on older weights. Its samples then come from another
distribution than the one that the trainer differentiates, which makes the update off-policy unintentionally. The
correction weights each entry with trainer / engine, bounded: truncated importance sampling (Ionides,
2008; V-trace, arXiv 1802.01561) clamps the weight, masking drops what is out of bounds (IcePop, arXiv 2510.18855).
"""

from __future__ import annotations

import torch

from rlinf.algorithms.kl import MAX_LOG_RATIO
from rlinf.algorithms.sequences import first_of_sequences, mean_over_sequences, sum_over_sequences
from rlinf.algorithms.types import (
    AllReduce,
    Metrics,
    at_least_float32,
    masked_metric,
    masked_metrics,
    metric_pair,
    require_same_shape,
)
from rlinf.errors import AlgorithmError

LEVELS = ("token", "sequence", "geometric")
MODES = ("clamp", "mask")


def correct_importance(
    *,
    trainer_logprobs: torch.Tensor,
    engine_logprobs: torch.Tensor,
    loss_mask: torch.Tensor,
    level: str,
    mode: str,
    lower_bound: float,
    upper_bound: float,
    sequence_ids: torch.Tensor | None = None,
) -> tuple[torch.Tensor, Metrics]:
    """Return the weight of each entry, to be multiplied with its advantage.

    Every term of the policy losses is linear in the advantage, and weights are not negative, so that weighting the
    advantages is weighting losses. Denominators count entries of weight 0 too: the estimate is not blown up again.

    Args:
        trainer_logprobs: [N, ...], or packed [T]: of the policy at the start of the update, by the trainer.
        engine_logprobs: Same shape; of the engine, for the distribution that was sampled from.
        loss_mask: bool, same shape; entries outside may be anything.
        level: What the ratio trainer / engine is of: ``token``; ``sequence``, the product over its entries, which all
            have its weight; ``geometric``, their geometric mean.
        mode: ``clamp`` brings ratios into the bounds; ``mask`` gives those outside weight 0.
        lower_bound: Smallest ratio.
        upper_bound: Largest ratio.
        sequence_ids: int64 [T] for packed entries; None for rows.

    Returns:
        Weights of the same shape, 0 outside the mask, and the metrics ``correction_weight`` (mean) and
        ``correction_fraction`` (of entries that were out of bounds).

    Raises:
        AlgorithmError: Shapes that differ, or an unknown level or mode.
    """
    log_ratio = _log_ratio(trainer_logprobs, engine_logprobs, loss_mask)
    if level not in LEVELS or mode not in MODES:
        raise AlgorithmError(
            f"importance_correction: received level '{level}' and mode '{mode}'; choose a level of "
            f"{', '.join(LEVELS)} and a mode of {', '.join(MODES)}."
        )
    if level == "sequence":
        log_ratio = sum_over_sequences(log_ratio, loss_mask, sequence_ids)
    elif level == "geometric":
        log_ratio = mean_over_sequences(log_ratio, loss_mask, sequence_ids)
    ratio = torch.exp(log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    bounded = ratio.clamp(lower_bound, upper_bound)
    is_outside = bounded != ratio
    weights = bounded if mode == "clamp" else torch.where(is_outside, torch.zeros_like(ratio), ratio)
    weights = torch.where(loss_mask, weights, torch.zeros_like(weights))
    metrics = masked_metrics(loss_mask, correction_weight=weights, correction_fraction=is_outside.to(weights))
    return weights, metrics


def mismatch_metrics(
    *,
    trainer_logprobs: torch.Tensor,
    engine_logprobs: torch.Tensor,
    loss_mask: torch.Tensor,
    sequence_ids: torch.Tensor | None = None,
    all_reduce_max: AllReduce | None = None,
) -> Metrics:
    """Measure how far the trainer's probabilities are from those that the engine sampled with.

    With w = trainer / engine of a sampled token, all as means over the engine's samples:

    - ``mismatch_k1``: - log w, and ``mismatch_k3``: w - 1 - log w; both estimate KL(engine || trainer).
    - ``mismatch_chi2``: w^2 - 1, which estimates the chi-square divergence of the trainer from the engine.
    - ``mismatch_ess``: effective sample size, (sum w)^2 / sum w^2, as a share of the tokens (``finalize_metrics``
      computes it from ``mismatch_weight`` and ``mismatch_weight_square``).
    - ``mismatch_perplexity_ratio``: the mean over sequences of trainer / engine perplexity.
    - ``mismatch_max_probability_difference``: the largest difference of a token's two probabilities, over all ranks.

    Args:
        trainer_logprobs: See ``correct_importance``.
        engine_logprobs: See ``correct_importance``.
        loss_mask: See ``correct_importance``.
        sequence_ids: See ``correct_importance``.
        all_reduce_max: Returns the largest of a tensor over all ranks; None on one rank.

    Returns:
        Metrics as (sum, count) pairs.

    Raises:
        AlgorithmError: Shapes that differ.
    """
    log_weight = _log_ratio(trainer_logprobs, engine_logprobs, loss_mask)
    weight = torch.exp(log_weight.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
    metrics = masked_metrics(
        loss_mask,
        mismatch_k1=-log_weight,
        mismatch_k3=weight - 1 - log_weight,
        mismatch_chi2=weight.square() - 1,
        mismatch_weight=weight,
        mismatch_weight_square=weight.square(),
    )
    per_sequence = torch.exp(-mean_over_sequences(log_weight, loss_mask, sequence_ids).clamp(min=-MAX_LOG_RATIO))
    metrics["mismatch_perplexity_ratio"] = masked_metric(per_sequence, first_of_sequences(loss_mask, sequence_ids))
    difference = (at_least_float32(trainer_logprobs).exp() - at_least_float32(engine_logprobs).exp()).abs()
    largest = torch.where(loss_mask, difference, torch.zeros_like(difference)).max()
    largest = largest if all_reduce_max is None else all_reduce_max(largest)
    # Equal on all ranks, so that adding the pairs and dividing leaves it as it is.
    metrics["mismatch_max_probability_difference"] = metric_pair(largest, torch.ones_like(largest))
    return metrics


def _log_ratio(trainer: torch.Tensor, engine: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    require_same_shape("importance", trainer_logprobs=trainer, engine_logprobs=engine, loss_mask=mask)
    difference = (at_least_float32(trainer) - at_least_float32(engine)).detach()
    return torch.where(mask, difference, torch.zeros_like(difference))
