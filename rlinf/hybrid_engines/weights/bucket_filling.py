"""Copying tensors into a bucket on the host and hashing it, in one pass over memory that several threads share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from rlinf.hybrid_engines.weights.checksum import PART_BYTES, hash_parts

CopyRange = Callable[[int, int], None]
"""Fills the bytes of a bucket from one to another, which lie within one tensor."""


def fill_and_hash(content: torch.Tensor, placed: Iterable[tuple[int, torch.dtype, torch.Tensor]], *, seed: int) -> int:
    """Copy tensors to their places; return the ``parts`` checksum of the result.

    Args:
        content: uint8 [bytes] on the host; what lies between the tensors is hashed as it is.
        placed: First byte, type in the bucket, and the tensor, on any device; in the order of their bytes.
        seed: See ``checksum``.
    """
    target = content.numpy()
    tasks: list[list[tuple[CopyRange, int, int]]] = [[] for _ in range(-(-len(target) // PART_BYTES))]
    for offset, dtype, tensor in placed:
        end = offset + tensor.numel() * dtype.itemsize
        copy = _copier(content, target, offset, dtype, tensor.detach())
        if copy is None:
            continue
        for part in range(offset // PART_BYTES, -(-end // PART_BYTES)):
            begin_of_part = part * PART_BYTES
            tasks[part].append((copy, max(offset, begin_of_part), min(end, begin_of_part + PART_BYTES)))

    def fill(part: int) -> None:
        for copy, begin, end in tasks[part]:
            copy(begin, end)

    return hash_parts(target, seed=seed, fill=fill)


def _copier(
    content: torch.Tensor,
    target: np.ndarray[Any, np.dtype[np.uint8]],
    offset: int,
    dtype: torch.dtype,
    source: torch.Tensor,
) -> CopyRange | None:
    """Return what copies parts of a tensor; None if it has been copied at once because it does not lie in order."""
    if source.device.type != "cpu" or not source.is_contiguous():
        _view(content, offset, dtype, source.numel()).view(source.shape).copy_(source)
        return None
    flat = source.view(-1)
    if source.dtype == dtype:
        # numpy begins a copy several times faster than torch.
        given_bytes = flat.view(torch.uint8).numpy()

        def copy(begin: int, end: int) -> None:
            np.copyto(target[begin:end], given_bytes[begin - offset : end - offset])

    else:
        taken, itemsize = _view(content, offset, dtype, flat.numel()), dtype.itemsize

        def copy(begin: int, end: int) -> None:
            first, last = (begin - offset) // itemsize, (end - offset) // itemsize
            taken[first:last].copy_(flat[first:last])

    return copy


def _view(content: torch.Tensor, offset: int, dtype: torch.dtype, length: int) -> torch.Tensor:
    return content[offset : offset + length * dtype.itemsize].view(dtype)
