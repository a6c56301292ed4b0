"""Every change of a bucket's content changes its checksum, on whichever threads or device it is computed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import xxhash

from rlinf.hybrid_engines.weights import checksum as checksums
from rlinf.hybrid_engines.weights import work_sharing
from rlinf.hybrid_engines.weights.checksum import PART_BYTES, ChecksumKind, checksum, hash_parts

KINDS: tuple[ChecksumKind, ...] = ("parts", "words")
# Several parts for each of two threads, and a last one that is shorter.
NUM_BYTES = 9 * PART_BYTES + 64


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let several threads share little."""
    monkeypatch.setattr(checksums, "_MIN_PARTS", 2)
    monkeypatch.setattr(checksums, "_WORDS_PER_STEP", NUM_BYTES // 8 // 3)
    monkeypatch.setattr(work_sharing.os, "sched_getaffinity", lambda _: range(3))


def content() -> torch.Tensor:
    """Return bytes that are all different in every word."""
    return torch.arange(NUM_BYTES // 8, dtype=torch.int64).mul_(0x0123456789ABCDEF).view(torch.uint8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("position", [0, 7, PART_BYTES - 1, PART_BYTES, 5 * PART_BYTES + 3, NUM_BYTES - 1])
@pytest.mark.parametrize("bit", [0, 7])
def test_a_changed_bit_is_noticed(kind: ChecksumKind, position: int, bit: int) -> None:
    changed = content()
    changed[position] ^= 1 << bit
    assert checksum(changed, seed=1, kind=kind) != checksum(content(), seed=1, kind=kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("one", "other"), [(0, 1), (3, NUM_BYTES // 8 // 3 + 3), (1, PART_BYTES // 8 + 1)], ids=["words", "steps", "parts"]
)
def test_exchanged_words_are_noticed(kind: ChecksumKind, one: int, other: int) -> None:
    words = content().view(torch.int64)
    words[[one, other]] = words[[other, one]]
    assert checksum(words.view(torch.uint8), seed=1, kind=kind) != checksum(content(), seed=1, kind=kind)


@pytest.mark.parametrize("kind", KINDS)
def test_the_seed_matters_and_the_checksum_has_64_bits(kind: ChecksumKind) -> None:
    found = {checksum(content(), seed=seed, kind=kind) for seed in range(20)}
    assert len(found) == 20
    assert all(0 <= value < 1 << 64 for value in found)
    assert max(found) > 1 << 56


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_bucket_has_a_checksum(kind: ChecksumKind) -> None:
    empty = torch.zeros(0, dtype=torch.uint8)
    assert checksum(empty, seed=1, kind=kind) == checksum(empty, seed=1, kind=kind)


def test_parts_are_hashed_one_by_one() -> None:
    data = content().numpy()
    parts = [
        xxhash.xxh3_64_intdigest(data[begin : begin + PART_BYTES].data) for begin in range(0, len(data), PART_BYTES)
    ]
    assert hash_parts(data, seed=5) == xxhash.xxh3_64_intdigest(np.array(parts, np.uint64).data, seed=5)


def test_words_are_summed_with_odd_factors() -> None:
    words = content().view(torch.int64).tolist()
    total = sum(word * ((2 * number + 1) * checksums._MULTIPLIER) for number, word in enumerate(words)) % (1 << 64)
    expected = xxhash.xxh3_64_intdigest(total.to_bytes(8, "little"), seed=5)
    assert checksum(content(), seed=5, kind="words") == expected


def test_every_part_is_filled_before_it_is_hashed() -> None:
    data = content().numpy()
    expected, taken = hash_parts(data, seed=0), data.copy()
    data[:] = 0
    parts: list[int] = []

    def fill(part: int) -> None:
        parts.append(part)
        data[part * PART_BYTES : (part + 1) * PART_BYTES] = taken[part * PART_BYTES : (part + 1) * PART_BYTES]

    assert hash_parts(data, seed=0, fill=fill) == expected
    assert sorted(parts) == list(range(10))
