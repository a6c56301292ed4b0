"""Patches of buckets: what differs from the bucket of an earlier version, and nothing where nothing does.

Bits are compared, not numbers: -0.0 and every NaN arrive as they are. A patch ends with the seal of the bucket that it
results in, so that a receiver which applies it to anything else finds out (``check_bucket``).

At a learning rate of 1e-6, a step changes some 4 % of a model's weights in bfloat16, and next to all in float32.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from rlinf.errors import WeightSyncError
from rlinf.hybrid_engines.weights.bucket import SEAL_BYTES, TensorEntry
from rlinf.hybrid_engines.weights.work_sharing import share

Array = np.ndarray[Any, np.dtype[Any]]

_NONE, _GAPS, _BITMAP, _WHOLE = range(4)
"""How a region is encoded: it is unchanged; positions as gaps of a byte each; positions as a bitmap; all values."""
_WORD_BYTES = 8
_SKIP = 255
"""Gap that continues in the next byte."""
_MOST_WORDS = 0.97
"""Part of the words, at 8 bytes, from which on positions are not worth their search."""


def encode_patch(base: torch.Tensor, bucket: torch.Tensor, entries: Sequence[TensorEntry]) -> torch.Tensor:
    """Return what makes ``bucket`` of ``base``.

    Args:
        base: The bucket of the earlier version, uint8, on the host.
        bucket: Of the same layout.
        entries: The tensors in it, in order.

    Returns:
        uint8, at most a few bytes a tensor longer than the bucket.
    """
    regions = list(_regions(entries, bucket.nbytes))
    heads = np.zeros((len(regions), 3), np.int64)
    before, after = base.numpy(), bucket.numpy()
    parts: list[tuple[Array, ...]] = [()] * len(regions)

    def encode(number: int) -> None:
        begin, end, width = regions[number]
        kind, positions, values = _encode(before[begin:end], after[begin:end], width)
        heads[number] = kind, len(positions), len(values)
        parts[number] = _padded(positions), _padded(values.view(np.uint8))

    share(encode, len(regions))
    head = heads.reshape(-1).view(np.uint8)
    return torch.from_numpy(np.concatenate([head, *itertools.chain.from_iterable(parts), after[-SEAL_BYTES:]]))


def apply_patch(
    base: torch.Tensor,
    patch: torch.Tensor,
    entries: Sequence[TensorEntry],
    allocate: Callable[[int], torch.Tensor] | None = None,
) -> torch.Tensor:
    """Return the bucket that a patch makes of its base, which stays as it is.

    Args:
        base: The bucket of the earlier version, uint8, on the host.
        patch: What ``encode_patch`` returned.
        entries: The tensors in the bucket, in order.
        allocate: Returns uint8 memory for the result.

    Raises:
        WeightSyncError: The patch is no patch of such a bucket. That it is one of another bucket shows in the seal.
    """
    result = torch.empty_like(base) if allocate is None else allocate(base.nbytes)
    np.copyto(result.numpy(), base.numpy())
    try:
        _apply(result.numpy(), patch.numpy(), list(_regions(entries, base.nbytes)))
    except (ValueError, IndexError) as error:
        raise WeightSyncError(f"A patch of {patch.nbytes} bytes does not fit its bucket: {error}") from error
    return result


def _regions(entries: Sequence[TensorEntry], num_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Yield begin, end and bytes of an element for each tensor, what is behind it included."""
    ends = [*(entry.offset for entry in entries[1:]), num_bytes - SEAL_BYTES]
    for entry, end in zip(entries, ends, strict=True):
        yield entry.offset, end, min(entry.dtype.itemsize, _WORD_BYTES)


def _encode(before: Array, after: Array, width: int) -> tuple[int, Array, Array]:
    """Return the smallest encoding of a region: its kind, positions (bytes) and values (elements)."""
    empty = np.empty(0, np.uint8)
    element = np.dtype(f"i{width}")
    # Words are compared first: most of them are equal, and elements of those need no look.
    words = np.flatnonzero(before.view(np.int64) != after.view(np.int64)).astype(np.int32)
    if not len(words):
        return _NONE, empty, empty.view(element)
    num_elements, num_words = len(after) // width, len(after) // _WORD_BYTES
    if len(words) > _MOST_WORDS * num_words:
        return _WHOLE, empty, after.view(element)
    values = after.view(np.int64)[words].view(element)
    changed = np.flatnonzero(values != before.view(np.int64)[words].view(element)).astype(np.int32)
    values = values[changed]
    # Elements of a word are a power of two: shifts are several times faster than divisions.
    shift = (_WORD_BYTES // width).bit_length() - 1
    indices = (words[changed >> shift] << shift) + (changed & ((1 << shift) - 1))
    gaps = np.diff(indices, prepend=np.int32(-1)) - 1
    num_skips = int((gaps // _SKIP).sum()) if gaps.max() >= _SKIP else 0
    sizes = {
        _GAPS: len(gaps) + num_skips + values.nbytes,
        _BITMAP: -(-num_elements // 8) + values.nbytes,
        _WHOLE: len(after),
    }
    kind = min(sizes, key=sizes.__getitem__)
    if kind == _GAPS:
        return kind, _gap_bytes(gaps, num_skips), values
    if kind == _BITMAP:
        mask = np.zeros(num_elements, np.bool_)
        mask[indices] = True
        return kind, np.packbits(mask), values
    return kind, empty, after.view(element)


def _gap_bytes(gaps: Array, num_skips: int) -> Array:
    if not num_skips:
        return gaps.astype(np.uint8)
    skips, rest = np.divmod(gaps, _SKIP)
    result = np.full(len(gaps) + num_skips, _SKIP, np.uint8)
    result[np.cumsum(skips + 1) - 1] = rest
    return result


def _apply(target: Array, patch: Array, regions: list[tuple[int, int, int]]) -> None:
    position = len(regions) * 3 * _WORD_BYTES
    heads = patch[:position].view(np.int64).reshape(len(regions), 3).tolist()
    found: list[tuple[int, Array, Array]] = []
    for (kind, num_positions, num_values), (_, _, width) in zip(heads, regions, strict=True):
        positions = patch[position : position + num_positions]
        position += num_positions + -num_positions % _WORD_BYTES
        values = patch[position : position + num_values * width].view(f"i{width}")
        position += len(values) * width + -len(values) * width % _WORD_BYTES
        found.append((kind, positions, values))

    def change(number: int) -> None:
        begin, end, width = regions[number]
        _change(target[begin:end].view(f"i{width}"), *found[number])

    share(change, len(regions))
    target[-SEAL_BYTES:] = patch[position : position + SEAL_BYTES]


def _change(region: Array, kind: int, positions: Array, values: Array) -> None:
    if kind == _GAPS:
        steps = np.cumsum(positions, dtype=np.int32)
        if len(positions) > len(values):
            # A skip stands for no element.
            steps = steps[positions != _SKIP]
        region[steps + np.arange(len(steps), dtype=np.int32)] = values
    elif kind == _BITMAP:
        region[np.unpackbits(positions, count=len(region)).astype(np.bool_)] = values
    elif kind == _WHOLE:
        region[:] = values


def _padded(values: Array) -> Array:
    return np.pad(values, (0, -len(values) % _WORD_BYTES))
