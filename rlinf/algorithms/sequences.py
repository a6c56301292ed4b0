"""Sums over sequences, which are either the rows of a tensor or the parts of a packed one.

Rows: entries [N, ...], and sequence n is row n. Packed: entries [T] with ``sequence_ids`` int64 [T], the numbers
of the sequences from 0, as ``rlinf.data.packing`` lays them out.
"""

from __future__ import annotations

import math

import torch

from rlinf.algorithms.types import at_least_float32, require_same_shape


def sum_over_sequences(
    values: torch.Tensor, mask: torch.Tensor, sequence_ids: torch.Tensor | None = None
) -> torch.Tensor:
    """Give each entry the sum of ``values`` under the mask over its sequence.

    Args:
        values: Float [N, ...] or [T]; entries outside the mask may be anything.
        mask: bool, of the same shape.
        sequence_ids: int64 [T] for packed entries; None for rows.

    Returns:
        float32 (or float64) of the same shape.

    Raises:
        AlgorithmError: Shapes that differ.
    """
    require_same_shape("sum_over_sequences", values=values, mask=mask, sequence_ids=sequence_ids)
    values = at_least_float32(values)
    kept = torch.where(mask, values, torch.zeros_like(values))
    if sequence_ids is None:
        sums = _rows(kept).sum(1)
        return sums.view(-1, *[1] * (kept.ndim - 1)).expand_as(kept)
    # As many sums as tokens: their exact number would have to be fetched from the device.
    return torch.zeros_like(kept).index_add(0, sequence_ids, kept)[sequence_ids]


def mean_over_sequences(
    values: torch.Tensor, mask: torch.Tensor, sequence_ids: torch.Tensor | None = None
) -> torch.Tensor:
    """Give each entry the mean of ``values`` under the mask over its sequence, 0 where nothing is under it.

    Args:
        values: See ``sum_over_sequences``.
        mask: See ``sum_over_sequences``.
        sequence_ids: See ``sum_over_sequences``.
    """
    total = sum_over_sequences(values, mask, sequence_ids)
    return total / sum_over_sequences(mask.to(total), mask, sequence_ids).clamp(min=1)


def count_sequences(mask: torch.Tensor, sequence_ids: torch.Tensor | None = None) -> torch.Tensor:
    """Return int64 []: the sequences with an entry under the mask.

    Args:
        mask: bool [N, ...] or [T].
        sequence_ids: int64 [T] for packed entries, any numbers; None for rows.
    """
    if sequence_ids is None:
        return _rows(mask).any(dim=1).sum()
    return torch.tensor(torch.unique(sequence_ids[mask]).numel(), device=mask.device)


def first_of_sequences(mask: torch.Tensor, sequence_ids: torch.Tensor | None = None) -> torch.Tensor:
    """Return bool like ``mask``: the first entry under it of each sequence.

    Args:
        mask: bool [N, ...] or [T].
        sequence_ids: int64 [T] for packed entries; None for rows.
    """
    if sequence_ids is None:
        rows = _rows(mask)
        return (rows & (rows.cumsum(1) == 1)).view_as(mask)
    count = len(mask)
    places = torch.arange(count, device=mask.device)
    firsts = torch.full_like(places, count)
    firsts = firsts.scatter_reduce(0, sequence_ids, torch.where(mask, places, count), "amin")
    return mask & (firsts[sequence_ids] == places)


def _rows(entries: torch.Tensor) -> torch.Tensor:
    """[N, ...] to [N, entries of a row], also where N is 0."""
    return entries.reshape(entries.shape[0], math.prod(entries.shape[1:]))
