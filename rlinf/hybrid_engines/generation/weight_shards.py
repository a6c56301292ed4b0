"""Weights that an engine spreads over several devices, joined again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch


class Shard(NamedTuple):
    """A worker's part of a weight.

    Attributes:
        stage: Of the pipeline.
        dim: Dimension in which it is spread over the tensor-parallel workers; None: all have it whole.
        num_rows: Rows of the whole, where it is padded.
        tensor: On the host; None where another worker has the same.
    """

    stage: int
    dim: int | None
    num_rows: int | None
    tensor: torch.Tensor | None


def join_shards(shards: Sequence[Shard]) -> torch.Tensor:
    """Return a weight of its shards, in the order of the workers; stages that share it have it twice."""
    own = [shard for shard in shards if shard.stage == shards[0].stage]
    tensors = [shard.tensor for shard in own if shard.tensor is not None]
    dim = own[0].dim
    whole = tensors[0] if dim is None else torch.cat(tensors, dim)
    return whole if own[0].num_rows is None else whole[: own[0].num_rows]


def part_of(whole: torch.Tensor, *, size: int, dim: int | None, index: int) -> torch.Tensor:
    """Return the view of a weight that a worker's part is of, without the rows that pad it.

    Args:
        whole: The weight.
        size: Of the part, in ``dim``.
        dim: Dimension in which the weight is spread; None: the worker has it whole.
        index: Number of the part.
    """
    if dim is None:
        return whole
    begin = min(index * size, whole.shape[dim])
    return whole.narrow(dim, begin, min(size, whole.shape[dim] - begin))
