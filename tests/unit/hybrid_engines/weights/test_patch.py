"""A patch makes the later bucket of the earlier one to the bit, whatever changed; anything else shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlinf.errors import WeightSyncError
from rlinf.hybrid_engines.weights.bucket import Manifest, TensorEntry, check_bucket
from rlinf.hybrid_engines.weights.patch import apply_patch, encode_patch
from tests.unit.hybrid_engines.packing import pack_weights

Weights = dict[str, torch.Tensor]
DTYPES = {"half": torch.bfloat16, "single": torch.float32, "double": torch.float64, "bits": torch.uint8}
SPECIAL = [0.0, -0.0, float("inf"), float("nan"), 1.0, -1.0]


def weights_of(seed: int, size: int = 3000) -> Weights:
    generator = torch.Generator().manual_seed(seed)
    return {name: (torch.randn(size, generator=generator) * 50).to(dtype) for name, dtype in DTYPES.items()}


def changed(weights: Weights, share: float, seed: int) -> Weights:
    """Return weights of which this share of the elements differ."""
    generator = torch.Generator().manual_seed(seed)
    result = {}
    for name, tensor in weights.items():
        mask = torch.rand(len(tensor), generator=generator) < share
        result[name] = torch.where(mask, tensor + torch.ones_like(tensor), tensor)
    return result


def pack(weights: Weights, version: int) -> tuple[Manifest, list[torch.Tensor]]:
    return pack_weights(weights.items(), version=version, bucket_bytes=20_000)


def entries_of(manifest: Manifest, index: int) -> list[TensorEntry]:
    return [entry for entry in manifest.entries if entry.bucket == index]


def patched(before: Weights, after: Weights) -> tuple[int, int]:
    """Send weights as patches, check what comes out; return bytes of the patches and of the buckets."""
    manifest, bases = pack(before, 1)
    later, buckets = pack(after, 2)
    sizes = []
    for index, (base, bucket) in enumerate(zip(bases, buckets, strict=True)):
        kept = base.clone()
        patch = encode_patch(base, bucket, entries_of(manifest, index))
        result = apply_patch(base, patch, entries_of(manifest, index))
        assert torch.equal(result, bucket)
        assert torch.equal(base, kept)
        check_bucket(later, index, result)
        sizes.append(patch.nbytes)
    return sum(sizes), sum(bucket.nbytes for bucket in buckets)


@pytest.mark.parametrize(
    ("share", "gain"), [(0.0, 50), (0.0005, 20), (0.002, 15), (0.04, 7), (0.2, 2.3), (0.5, 1.2), (1.0, 0.98)]
)
def test_a_patch_is_as_small_as_what_changed(share: float, gain: float) -> None:
    weights = weights_of(0, 100_000)
    patch_bytes, dense_bytes = patched(weights, changed(weights, share, 1))
    assert dense_bytes > gain * patch_bytes


@given(
    share=st.sampled_from([0.0, 0.001, 0.03, 0.3, 0.6, 0.99, 1.0]),
    size=st.sampled_from([1, 2, 3, 7, 8, 9, 64, 255, 256, 257, 1000, 5000]),
    seed=st.integers(0, 1000),
    specials=st.lists(st.tuples(st.integers(0, 4999), st.sampled_from(SPECIAL), st.sampled_from(SPECIAL)), max_size=6),
)
def test_any_change_arrives_to_the_bit(
    share: float, size: int, seed: int, specials: list[tuple[int, float, float]]
) -> None:
    before = weights_of(seed, size)
    after = changed(before, share, seed + 1)
    for index, old, new in specials:
        for name in ("half", "single", "double"):
            before[name][index % size], after[name][index % size] = old, new
    patched(before, after)


def test_zeros_of_another_sign_and_other_nans_are_changes() -> None:
    before = {"w": torch.zeros(100, dtype=torch.bfloat16)}
    after = {"w": before["w"].clone()}
    after["w"][3] = -0.0
    bits = after["w"].view(torch.int16)
    bits[7], bits[8] = 0x7FC0, 0x7FC1
    patched(before, after)
    patched(after, before)


@pytest.mark.parametrize("gap", [0, 1, 253, 254, 255, 256, 509, 510, 511, 2000])
def test_gaps_of_any_length(gap: int) -> None:
    before = {"w": torch.zeros(5000, dtype=torch.bfloat16)}
    after = {"w": before["w"].clone()}
    after["w"][[gap, 2 * gap + 1, 2 * gap + 2, 4999]] = 1.0
    patch_bytes, _ = patched(before, after)
    assert patch_bytes < 250


def apply_all(bases: list[torch.Tensor], manifest: Manifest, patches: list[torch.Tensor]) -> list[torch.Tensor]:
    """Apply the patches of an update and check what they result in."""
    results = []
    for index, (base, patch) in enumerate(zip(bases, patches, strict=True)):
        results.append(apply_patch(base, patch, entries_of(manifest, index)))
        check_bucket(manifest, index, results[-1])
    return results


@given(order=st.lists(st.integers(1, 4), min_size=1, max_size=6), share=st.sampled_from([0.0, 0.01, 0.4]))
def test_patches_that_are_skipped_repeated_or_reordered_are_found(order: list[int], share: float) -> None:
    versions = [weights_of(0, 400)]
    for version in range(1, 5):
        versions.append(changed(versions[-1], share, version))
    packed = [pack(weights, version) for version, weights in enumerate(versions)]
    patches = {
        version: [
            encode_patch(base, bucket, entries_of(packed[0][0], index))
            for index, (base, bucket) in enumerate(zip(packed[version - 1][1], packed[version][1], strict=True))
        ]
        for version in range(1, 5)
    }
    held, buckets = 0, packed[0][1]
    for version in order:
        try:
            results = apply_all(buckets, packed[version][0], patches[version])
        except WeightSyncError:
            # Where nothing changed, a skipped version makes no difference.
            assert share
            assert held != version - 1
            continue
        buckets, held = results, version
        assert all(torch.equal(found, bucket) for found, bucket in zip(buckets, packed[version][1], strict=True))


@pytest.mark.parametrize("length", [0, 7, 8, 64, -8, -1])
def test_a_patch_that_was_cut_off_is_refused(length: int) -> None:
    weights = weights_of(0)
    manifest, bases = pack(weights, 1)
    later, buckets = pack(changed(weights, 0.1, 1), 2)
    patch = encode_patch(bases[0], buckets[0], entries_of(manifest, 0))

    def take() -> None:
        check_bucket(later, 0, apply_patch(bases[0], patch[:length], entries_of(manifest, 0)))

    with pytest.raises(WeightSyncError):
        take()


def test_a_damaged_patch_is_refused() -> None:
    weights = weights_of(0, 200)
    manifest, bases = pack(weights, 1)
    later, buckets = pack(changed(weights, 0.3, 1), 2)
    patch = encode_patch(bases[0], buckets[0], entries_of(manifest, 0))
    draw = np.random.default_rng(0)
    for position in draw.integers(0, len(patch), 60):
        damaged = patch.clone()
        damaged[position] ^= 1 << int(draw.integers(8))
        try:
            check_bucket(later, 0, apply_patch(bases[0], damaged, entries_of(manifest, 0)))
        except WeightSyncError:
            continue
        # Only bytes that fill up to a whole word make no difference.
        assert torch.equal(apply_patch(bases[0], damaged, entries_of(manifest, 0)), buckets[0])


def test_a_bucket_of_another_layout_is_refused() -> None:
    manifest, bases = pack(weights_of(0), 1)
    _, buckets = pack(changed(weights_of(0), 0.1, 1), 2)
    patch = encode_patch(bases[0], buckets[0], entries_of(manifest, 0))
    entry = replace(entries_of(manifest, 0)[0], dtype=torch.int64)
    with pytest.raises(WeightSyncError, match="does not fit its bucket"):
        apply_patch(bases[0][:40], patch, [entry])
