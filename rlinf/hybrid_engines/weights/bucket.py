"""Buckets of weights under a manifest: what is sent, and what a receiver checks before it commits anything."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
import xxhash
from torch import nn

from rlinf.errors import WeightSyncError
from rlinf.telemetry.trace import traced

_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where one tensor lies.

    Attributes:
        name: Name in the model's state dict.
        dtype: Its element type.
        shape: Its shape.
        bucket: Index of the bucket.
        offset: First byte within the bucket, a multiple of 64.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    bucket: int
    offset: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a complete set of weights consists of.

    Attributes:
        version: Grows with every update of the policy.
        entries: All tensors.
        checksums: xxh3-64 of each bucket, in order.
    """

    version: int
    entries: tuple[TensorEntry, ...]
    checksums: tuple[int, ...]


@traced("pack_weights", "weights")
def pack_weights(
    weights: Iterable[tuple[str, torch.Tensor]],
    *,
    version: int,
    bucket_bytes: int,
    used: Sequence[torch.Tensor] = (),
) -> tuple[Manifest, list[torch.Tensor]]:
    """Copy named tensors into buckets.

    Args:
        weights: Names and whole tensors, on any device.
        version: Version of the policy they belong to.
        bucket_bytes: Size at which a bucket is closed; a larger tensor has a bucket of its own.
        used: Buckets of an earlier call that nobody reads any more. Those of the right size are written to again: new
            memory costs several times as much as the copy.

    Returns:
        The manifest, and the buckets as uint8 host tensors.
    """
    entries: list[TensorEntry] = []
    buckets: list[torch.Tensor] = []
    for index, group in enumerate(_group_by_size(weights, bucket_bytes)):
        offsets, size = _layout([t for _, t in group])
        fits = index < len(used) and used[index].nbytes == size
        bucket = used[index] if fits else torch.zeros(size, dtype=torch.uint8)
        for (name, tensor), offset in zip(group, offsets, strict=True):
            target = bucket[offset : offset + tensor.nbytes].view(tensor.dtype)
            target.copy_(tensor.detach().reshape(-1))
            entries.append(TensorEntry(name, tensor.dtype, tuple(tensor.shape), index, offset))
        buckets.append(bucket)
    return Manifest(version, tuple(entries), tuple(map(checksum, buckets))), buckets


def checksum(bucket: torch.Tensor) -> int:
    """Return the xxh3-64 of a bucket, wherever it lies."""
    return xxhash.xxh3_64_intdigest(bucket.cpu().numpy().data)


def view_entry(entry: TensorEntry, bucket: torch.Tensor) -> torch.Tensor:
    """Return one tensor of a bucket, sharing its memory."""
    size = math.prod(entry.shape) * entry.dtype.itemsize
    return bucket[entry.offset : entry.offset + size].view(entry.dtype).view(entry.shape)


class WeightReceiver:
    """Loads weights into a model, all or nothing.

    Args:
        model: Filled in place; keeps its own precision and device.
        ignore: Tells by name which tensors are never sent.
    """

    def __init__(self, model: nn.Module, *, ignore: Callable[[str], bool] | None = None) -> None:
        state = model.state_dict(keep_vars=True)
        self._targets = {name: t for name, t in state.items() if ignore is None or not ignore(name)}
        self.version = -1

    @traced("load_weights", "weights")
    def load(self, manifest: Manifest, buckets: list[torch.Tensor]) -> None:
        """Check buckets against the manifest, then copy them into the model.

        Args:
            manifest: What the sender announced.
            buckets: uint8 tensors in order.

        Raises:
            WeightSyncError: A bucket is missing or damaged, names or shapes differ, or the version is an older one.
                The model is then unchanged.
        """
        self._check(manifest, buckets)
        with torch.no_grad():
            for entry in manifest.entries:
                self._targets[entry.name].copy_(view_entry(entry, buckets[entry.bucket]))
        self.version = manifest.version

    def _check(self, manifest: Manifest, buckets: list[torch.Tensor]) -> None:
        if manifest.version < self.version:
            raise WeightSyncError(f"Weights of version {manifest.version} arrived after version {self.version}.")
        if len(buckets) != len(manifest.checksums):
            raise WeightSyncError(f"Received {len(buckets)} of {len(manifest.checksums)} weight buckets.")
        for index, (bucket, expected) in enumerate(zip(buckets, manifest.checksums, strict=True)):
            if checksum(bucket) != expected:
                raise WeightSyncError(f"Weight bucket {index} of version {manifest.version} has a wrong checksum.")
        names = {entry.name for entry in manifest.entries}
        if names != self._targets.keys():
            missing, extra = sorted(self._targets.keys() - names), sorted(names - self._targets.keys())
            raise WeightSyncError(f"Weights do not match the model: missing {missing}, unexpected {extra}.")
        for entry in manifest.entries:
            shape = tuple(self._targets[entry.name].shape)
            if shape != entry.shape:
                raise WeightSyncError(f"Weight '{entry.name}' has shape {entry.shape}, the model expects {shape}.")


def _group_by_size(
    weights: Iterable[tuple[str, torch.Tensor]], bucket_bytes: int
) -> Iterator[list[tuple[str, torch.Tensor]]]:
    group: list[tuple[str, torch.Tensor]] = []
    size = 0
    for name, tensor in weights:
        if group and size + tensor.nbytes > bucket_bytes:
            yield group
            group, size = [], 0
        group.append((name, tensor))
        size += tensor.nbytes
    if group:
        yield group


def _layout(tensors: list[torch.Tensor]) -> tuple[list[int], int]:
    offsets, position = [], 0
    for tensor in tensors:
        offsets.append(position)
        position += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
    return offsets, position
