"""How the losses of single entries become one number, with denominators counted over the whole update batch.

A micro-batch contributes ``sum(loss under the mask) / global count * data_parallel_size``. Micro-batch losses are added
(gradients accumulate) and gradients are averaged over ranks, so the factor ``data_parallel_size`` leaves exactly the
sum over the update batch divided by its global count: the gradient depends neither on the size of micro-batches, nor on
the number of ranks, nor on how samples are spread over them.

The first axis counts sequences (text) or samples (chunk steps); all further ones are its tokens. Packed text has one
axis, and ``sequence_ids`` hold the sequence of each entry.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from rlinf.algorithms.sequences import count_sequences, sum_over_sequences
from rlinf.algorithms.types import AllReduce, masked_sum, require_same_shape
from rlinf.errors import AlgorithmError

LOSS_AGG_FUNCS = ("token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean")


@dataclass(frozen=True, slots=True)
class Denominators:
    """Counts over one update batch: all micro-batches of all ranks of one optimizer step.

    Attributes:
        num_valid_tokens: Entries under the mask.
        num_sequences: Rows of the first axis with at least one entry under the mask.
        max_tokens: Entries that a row can have at most; the constant divisor of ``seq-mean-token-sum-norm``.
        data_parallel_size: Ranks over which gradients are averaged.
    """

    num_valid_tokens: int
    num_sequences: int
    max_tokens: int
    data_parallel_size: int = 1

    def share(self, mask: torch.Tensor) -> torch.Tensor:
        """Return the scalar share of the update batch's valid entries that are under ``mask``; shares add up to 1."""
        return mask.sum() / max(self.num_valid_tokens, 1)


@dataclass(frozen=True, slots=True)
class LossDenominators:
    """Denominators of a loss's parts, which may live at different levels.

    Attributes:
        policy: At the level of the log-probabilities.
        entropy: At the level of the entropy.
        value: At the level of the values.
    """

    policy: Denominators
    entropy: Denominators
    value: Denominators


def count_valid(mask: torch.Tensor, sequence_ids: torch.Tensor | None = None) -> torch.Tensor:
    """Return int64 [2]: the valid entries of ``mask`` [N, ...] and the rows (or packed sequences) that have one."""
    return torch.stack((mask.sum(), count_sequences(mask, sequence_ids)))


def compute_denominators(
    masks: dict[str, torch.Tensor],
    *,
    data_parallel_size: int = 1,
    all_reduce: AllReduce | None = None,
    max_tokens: int | None = None,
    sequence_ids: torch.Tensor | None = None,
) -> dict[str, Denominators]:
    """Count the valid entries of an update batch, at several levels with one all-reduce.

    Args:
        masks: bool [N, ...] by level: this rank's share of the update batch; N may be 0 and may differ between ranks.
        data_parallel_size: Ranks over which gradients are averaged.
        all_reduce: Sum over these ranks; None on one rank. Called once.
        max_tokens: Entries that a row can have at most; None takes the number of entries of a row of the mask, which
            must then be the same on all ranks and in all update batches.
        sequence_ids: int64 [T] where the masks are packed, [T]: equal for the entries of one sequence, and different
            for any two of this rank's. Packed entries need ``max_tokens``.

    Returns:
        Denominators under the same keys.

    Raises:
        AlgorithmError: Packed masks without ``max_tokens``.
    """
    if sequence_ids is not None and max_tokens is None:
        raise AlgorithmError(
            "compute_denominators: packed masks do not show how long a sequence can be; pass max_tokens, "
            "algorithm.sampling_params.max_new_tokens for example."
        )
    names = sorted(masks)
    counts = torch.stack([count_valid(masks[name], sequence_ids) for name in names])
    if all_reduce is not None:
        counts = all_reduce(counts)
    return {
        name: Denominators(
            num_valid_tokens=int(num_tokens),
            num_sequences=int(num_sequences),
            max_tokens=max_tokens or math.prod(masks[name].shape[1:]),
            data_parallel_size=data_parallel_size,
        )
        for name, (num_tokens, num_sequences) in zip(names, counts.tolist(), strict=True)
    }


def compute_loss_denominators(
    *,
    policy_mask: torch.Tensor,
    entropy_mask: torch.Tensor | None = None,
    value_mask: torch.Tensor | None = None,
    data_parallel_size: int = 1,
    all_reduce: AllReduce | None = None,
    max_tokens: int | None = None,
    sequence_ids: torch.Tensor | None = None,
) -> LossDenominators:
    """Count the valid entries of an update batch for all parts of a policy loss.

    Args:
        policy_mask: bool [N, ...] at the level of the log-probabilities; this rank's share of the update batch.
        entropy_mask: bool [N, ...] at the level of the entropy; None takes the policy's.
        value_mask: bool [N, ...] at the level of the values; None takes the policy's.
        data_parallel_size: Ranks over which gradients are averaged.
        all_reduce: Sum over these ranks; None on one rank. Called once.
        max_tokens: See ``compute_denominators``.
        sequence_ids: See ``compute_denominators``.

    Returns:
        Denominators of the loss's parts.

    Raises:
        AlgorithmError: See ``compute_denominators``.
    """
    masks = {
        "policy": policy_mask,
        "entropy": policy_mask if entropy_mask is None else entropy_mask,
        "value": policy_mask if value_mask is None else value_mask,
    }
    counted = compute_denominators(
        masks,
        data_parallel_size=data_parallel_size,
        all_reduce=all_reduce,
        max_tokens=max_tokens,
        sequence_ids=sequence_ids,
    )
    return LossDenominators(policy=counted["policy"], entropy=counted["entropy"], value=counted["value"])


def aggregate_loss(
    loss: torch.Tensor,
    mask: torch.Tensor,
    *,
    loss_agg_func: str,
    denominators: Denominators,
    sequence_ids: torch.Tensor | None = None,
    sequence_weights: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return a micro-batch's part of the update batch's loss.

    ``token-mean``: the mean over all valid entries. ``seq-mean-token-sum``: the mean over sequences of the sum over
    their entries. ``seq-mean-token-sum-norm``: that over the constant ``max_tokens`` (Dr.GRPO, arXiv 2503.20783).
    ``seq-mean-token-mean``: the mean over sequences of the mean over their entries (GRPO, arXiv 2402.03300, Eq. 3).
    Sequences without a valid entry count in none.

    Args:
        loss: Float [N, ...] or, packed, [T]; entries outside the mask may be anything.
        mask: bool, of the same shape.
        loss_agg_func: One of the four names.
        denominators: Global counts.
        sequence_ids: int64 [T] for packed entries, from 0; a sequence is never split between micro-batches. None for
            rows.
        sequence_weights: Float like ``loss``; the weight of each entry's sequence in means over sequences, where
            several of them are one of ``denominators.num_sequences``. None weighs all alike.

    Returns:
        Scalar that carries a gradient even if the mask is all false.

    Raises:
        AlgorithmError: An unknown name, or shapes that differ.
    """
    require_same_shape("aggregate_loss", loss=loss, mask=mask)
    scale = denominators.data_parallel_size
    sequences = max(denominators.num_sequences, 1)
    if loss_agg_func == "token-mean":
        return masked_sum(loss, mask) / max(denominators.num_valid_tokens, 1) * scale
    if sequence_weights is not None:
        loss = loss * sequence_weights
    if loss_agg_func == "seq-mean-token-sum":
        return masked_sum(loss, mask) / sequences * scale
    if loss_agg_func == "seq-mean-token-sum-norm":
        return masked_sum(loss, mask) / (sequences * denominators.max_tokens) * scale
    if loss_agg_func == "seq-mean-token-mean":
        lengths = sum_over_sequences(mask.float(), mask, sequence_ids).clamp(min=1)
        return masked_sum(loss / lengths, mask) / sequences * scale
    raise AlgorithmError(
        f"aggregate_loss: unknown loss_agg_func '{loss_agg_func}'; choose {', '.join(LOSS_AGG_FUNCS)}."
    )
