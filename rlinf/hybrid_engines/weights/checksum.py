"""Checksums of buckets: by parts that threads share on the host, by words where the bucket lies on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
import xxhash

from rlinf.hybrid_engines.weights.work_sharing import share

PART_BYTES = 512 << 10
"""Bytes that are copied and then hashed: they are in the processor's cache still. A multiple of every alignment."""
_MIN_PARTS = 4
"""Of each thread: starting one costs as much as copying a part."""
_WORDS_PER_STEP = 1 << 22
"""Words that are summed at a time: bounds the memory that it takes."""
_MULTIPLIER = 0x1E3779B97F4A7C15
"""Odd, and half of its bits are set: neighbouring words have very different factors."""
_MASK = (1 << 64) - 1

ChecksumKind = Literal["parts", "words"]
"""``parts``: xxh3-64 of the xxh3-64s of the parts. ``words``: the sum of 64-bit words, each multiplied by an odd number
of its own, modulo 2^64; computed with torch alone, on whichever device the bucket lies."""


def checksum(content: torch.Tensor, *, seed: int, kind: ChecksumKind) -> int:
    """Return the checksum of a bucket's content, an integer of 64 bits.

    Args:
        content: uint8 [bytes], a multiple of 8; on the host for ``parts``.
        seed: Another one gives another checksum.
        kind: How it is computed.
    """
    return _sum_words(content, seed) if kind == "words" else hash_parts(content.numpy(), seed=seed)


def hash_parts(
    content: np.ndarray[Any, np.dtype[np.uint8]], *, seed: int, fill: Callable[[int], None] | None = None
) -> int:
    """Return the ``parts`` checksum.

    Args:
        content: The bytes.
        seed: Another one gives another checksum.
        fill: Called with the number of a part just before it is hashed, on any thread.

    Raises:
        Exception: What ``fill`` raised.
    """
    count = -(-len(content) // PART_BYTES)
    digests = np.zeros(count, np.uint64)

    def hash_part(part: int) -> None:
        if fill is not None:
            fill(part)
        digests[part] = xxhash.xxh3_64_intdigest(content[part * PART_BYTES : (part + 1) * PART_BYTES].data)

    share(hash_part, count, min_each=_MIN_PARTS)
    return xxhash.xxh3_64_intdigest(digests.data, seed=seed)


def _sum_words(content: torch.Tensor, seed: int) -> int:
    words = content.view(torch.int64)
    total = torch.zeros((), dtype=torch.int64, device=words.device)
    for begin in range(0, words.numel(), _WORDS_PER_STEP):
        part = words[begin : begin + _WORDS_PER_STEP]
        numbers = torch.arange(begin, begin + part.numel(), device=words.device)
        total += (part * (numbers * 2 + 1).mul_(_MULTIPLIER)).sum()
    # Mixed with the seed at the end: the words are on the device, the seed is not.
    return xxhash.xxh3_64_intdigest((int(total) & _MASK).to_bytes(8, "little"), seed=seed)
