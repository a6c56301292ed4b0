"""Weights as a receiver gets them, all at once."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from rlinf.hybrid_engines.weights.bucket import Manifest, fill_buckets, plan_buckets


def pack_weights(
    weights: Iterable[tuple[str, torch.Tensor]], *, version: int, bucket_bytes: int
) -> tuple[Manifest, list[torch.Tensor]]:
    """Return a manifest and its buckets."""
    named = list(weights)
    manifest = plan_buckets(named, version=version, bucket_bytes=bucket_bytes)
    return manifest, list(fill_buckets(manifest, named, zeros))


def zeros(num_bytes: int) -> torch.Tensor:
    """Return memory for a bucket."""
    return torch.zeros(num_bytes, dtype=torch.uint8)
