"""Buckets of weights under a manifest: what is sent, and what a receiver checks before it commits anything.

The manifest goes ahead. Each bucket carries a checksum of its own, so that a receiver loads one while the sender fills
the next.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from rlinf.errors import WeightSyncError
from rlinf.hybrid_engines.weights.bucket_filling import fill_and_hash
from rlinf.hybrid_engines.weights.checksum import ChecksumKind, checksum
from rlinf.telemetry.trace import traced

_ALIGNMENT = 64
SEAL_BYTES = 8

Receiver = tuple[str, int]
"""Group and rank."""


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
    """What an update of weights consists of.

    Attributes:
        version: Grows with every update of the policy.
        entries: All tensors, in the order of their buckets.
        bucket_sizes: Bytes of each bucket, in order; the last eight are its seal.
        bucket_owners: Rank of the publishing group that sends each bucket; the tensors of a bucket have one owner.
        left_out: Names of weights that stay as an earlier update has brought them; a complete update has none.
        relays: Pairs of a receiver and another one from which it takes the buckets instead of from their owner.
        base: Version of the update that the messages are patches of; None: they are whole buckets.
        is_checked: Whether this process has compared the seals of all buckets: they need not be compared again.
        is_lasting: Whether the memory of the buckets stays as it is: parameters may be views of it.
        checksum_kind: How the seals are computed: by words if the buckets are filled on a device.
    """

    version: int
    entries: tuple[TensorEntry, ...]
    bucket_sizes: tuple[int, ...]
    bucket_owners: tuple[int, ...]
    left_out: tuple[str, ...] = ()
    relays: tuple[tuple[Receiver, Receiver], ...] = ()
    base: int | None = None
    is_checked: bool = False
    is_lasting: bool = False
    checksum_kind: ChecksumKind = "parts"

    @property
    def is_partial(self) -> bool:
        """Whether receivers must have got other weights before."""
        return bool(self.left_out)

    @property
    def content(self) -> Manifest:
        """What is the same for all owners and receivers: without ways and encodings."""
        return replace(self, relays=(), base=None, is_checked=False, is_lasting=False)

    def check_version(self, version: int) -> None:
        """Return if this is the version that a receiver was promised.

        Raises:
            WeightSyncError: It is not.
        """
        if self.version != version:
            raise WeightSyncError(f"Expected weights of version {version}, received version {self.version}.")


def plan_buckets(
    weights: Iterable[tuple[str, torch.Tensor]],
    *,
    version: int,
    bucket_bytes: int,
    owners: Iterable[int] | None = None,
    dtype: torch.dtype | None = None,
    left_out: Iterable[str] = (),
) -> Manifest:
    """Lay named tensors out in buckets.

    Args:
        weights: Names and whole tensors, of which only type and shape matter (device ``meta`` will do).
        version: Version of the policy they belong to.
        bucket_bytes: Size at which a bucket is closed; a larger tensor has a bucket of its own.
        owners: Rank that sends each of the tensors; None is rank 0 for all.
        dtype: In which floating-point tensors are sent; None sends them as they are.
        left_out: See ``Manifest``.
    """
    entries: list[TensorEntry] = []
    filled: list[int] = []
    bucket_owners: list[int] = []
    last_of: dict[int, int] = {}
    for (name, tensor), owner in zip(weights, itertools.repeat(0) if owners is None else owners, strict=False):
        sent = tensor.dtype if dtype is None or not tensor.is_floating_point() else dtype
        num_bytes = tensor.numel() * sent.itemsize
        index = last_of.get(owner)
        if index is None or (filled[index] and filled[index] + num_bytes > bucket_bytes):
            index = last_of[owner] = len(filled)
            filled.append(0)
            bucket_owners.append(owner)
        entries.append(TensorEntry(name, sent, tuple(tensor.shape), index, filled[index]))
        filled[index] += -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
    entries.sort(key=lambda entry: entry.bucket)
    sizes = tuple(size + SEAL_BYTES for size in filled)
    return Manifest(version, tuple(entries), sizes, tuple(bucket_owners), tuple(left_out))


def fill_buckets(
    manifest: Manifest,
    weights: Iterable[tuple[str, torch.Tensor]],
    allocate: Callable[[int], torch.Tensor],
    *,
    owner: int | None = None,
) -> Iterator[torch.Tensor]:
    """Copy tensors into one bucket after the other.

    Args:
        manifest: How they were planned.
        weights: The tensors, on any device, in the order in which they were planned. Taken a bucket's at a time, to the
            end.
        allocate: Returns uint8 memory of the given number of bytes, once for each bucket; on the host unless seals are
            computed by words.
        owner: Whose tensors these are; None for those of all owners.

    Yields:
        Each bucket of this owner, sealed.
    """
    source = iter(weights)
    for entries in _by_bucket(manifest):
        index = entries[0].bucket
        if owner is not None and manifest.bucket_owners[index] != owner:
            continue
        bucket = allocate(manifest.bucket_sizes[index])
        seed = _seed(manifest.version, index)
        digest = _fill(bucket, entries, source, seed=seed, kind=manifest.checksum_kind)
        _seal_of(bucket)[0] = _signed(digest)
        yield bucket
    # Making tensors whole needs every rank, also one that has sent its last.
    for name, _ in source:
        raise AssertionError(f"'{name}' was not planned")


def check_bucket(manifest: Manifest, index: int, bucket: torch.Tensor) -> None:
    """Return if a bucket is what its sender has sealed: that one, of that version, undamaged.

    Args:
        manifest: What the sender announced.
        index: Of the bucket in the manifest.
        bucket: uint8, on any device.

    Raises:
        WeightSyncError: It is not.
    """
    kind, size = manifest.checksum_kind, manifest.bucket_sizes[index]
    if kind == "parts":
        bucket = bucket.cpu()
    seed = _seed(manifest.version, index)
    if bucket.nbytes != size or int(_seal_of(bucket)) != _signed(checksum(bucket[:-SEAL_BYTES], seed=seed, kind=kind)):
        raise WeightSyncError(
            f"Weight bucket {index} of version {manifest.version} has a wrong checksum or size "
            f"({bucket.nbytes} of {size} bytes)."
        )


def entries_of(manifest: Manifest, index: int) -> list[TensorEntry]:
    """Return the tensors of one bucket."""
    return [entry for entry in manifest.entries if entry.bucket == index]


def view_entry(entry: TensorEntry, bucket: torch.Tensor) -> torch.Tensor:
    """Return one tensor of a bucket, sharing its memory."""
    size = math.prod(entry.shape) * entry.dtype.itemsize
    return bucket[entry.offset : entry.offset + size].view(entry.dtype).view(entry.shape)


def check_manifest(manifest: Manifest, weights: Mapping[str, torch.Tensor], required: Collection[str]) -> None:
    """Return if the tensors of an update are those of a model.

    Args:
        manifest: What the sender announced.
        weights: The model's, by name.
        required: Names that the update must have, or leave out.

    Raises:
        WeightSyncError: A tensor is missing, is not the model's, or has another shape.
    """
    names = {entry.name for entry in manifest.entries} | set(manifest.left_out)
    missing, extra = sorted(set(required) - names), sorted(names - weights.keys())
    if missing or extra:
        what = "Weights, those left out included, do" if manifest.is_partial else "Weights do"
        raise WeightSyncError(f"{what} not match the model: missing {missing}, unexpected {extra}.")
    for entry in manifest.entries:
        shape = tuple(weights[entry.name].shape)
        if shape != entry.shape:
            raise WeightSyncError(f"Weight '{entry.name}' has shape {entry.shape}, the model expects {shape}.")


def take_over(target: torch.Tensor, tensor: torch.Tensor, *, is_lasting: bool) -> None:
    """Give a parameter or buffer new values.

    Args:
        target: The model's; a parameter becomes a view of ``tensor`` if it need not be copied.
        tensor: Of the same shape.
        is_lasting: See ``Manifest``.
    """
    same = (target.dtype, target.device) == (tensor.dtype, tensor.device)
    if is_lasting and same and isinstance(target, nn.Parameter):
        target.data = tensor
    else:
        target.copy_(tensor)


class WeightUpdate:
    """One update of a model's weights: takes its buckets in any order, and checks each before it is used.

    Args:
        manifest: What the sender announced.
        current_version: Version that the receiver has.
        is_complete: Whether the receiver has all weights; None: it does, if it has any version.

    Raises:
        WeightSyncError: The manifest's version is an older one, or the receiver lacks what it leaves out.
    """

    def __init__(self, manifest: Manifest, *, current_version: int, is_complete: bool | None = None) -> None:
        if manifest.version < current_version:
            raise WeightSyncError(f"Weights of version {manifest.version} arrived after version {current_version}.")
        if manifest.is_partial and not (current_version >= 0 if is_complete is None else is_complete):
            raise WeightSyncError(
                f"Version {manifest.version} consists of what is trained alone, and this receiver does not have the "
                "weights that stay as they are. Send all weights first."
            )
        self.manifest = manifest
        self._num_buckets = len(manifest.bucket_sizes)
        self._received: set[int] = set()

    def take(self, index: int, bucket: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
        """Check a bucket and return its tensors by name; they share its memory.

        Args:
            index: Of the bucket in the manifest.
            bucket: uint8, on any device.

        Raises:
            WeightSyncError: There is no such bucket, or its checksum is wrong. It counts as missing.
        """
        if not 0 <= index < self._num_buckets:
            raise WeightSyncError(f"Received weight bucket {index}; the manifest has {self._num_buckets}, from 0.")
        if not self.manifest.is_checked:
            check_bucket(self.manifest, index, bucket)
        self._received.add(index)
        return [(entry.name, view_entry(entry, bucket)) for entry in entries_of(self.manifest, index)]

    def finish(self) -> int:
        """End the update; return its version.

        Raises:
            WeightSyncError: A bucket is missing; the message says which.
        """
        missing = sorted(set(range(self._num_buckets)) - self._received)
        if missing:
            raise WeightSyncError(
                f"Received {len(self._received)} of {self._num_buckets} weight buckets of version "
                f"{self.manifest.version}; missing: {', '.join(map(str, missing))}. Send the update again."
            )
        return self.manifest.version


class WeightReceiver:
    """Loads weights into a model, all or nothing.

    Args:
        model: Filled in place; keeps its own precision and device.
        ignore: Returns by name whether a tensor is never sent.
    """

    def __init__(self, model: nn.Module, *, ignore: Callable[[str], bool] | None = None) -> None:
        self._model, self._ignore = model, ignore
        self.version = -1

    @traced("load_weights", "weights")
    @torch.no_grad()
    def load(self, manifest: Manifest, buckets: Sequence[torch.Tensor]) -> None:
        """Check buckets against the manifest, then copy them into the model.

        Args:
            manifest: What the sender announced.
            buckets: uint8 tensors in order.

        Raises:
            WeightSyncError: A bucket is missing or damaged, names or shapes differ, or the version is an older one.
                The model is then unchanged.
        """
        update, targets = WeightUpdate(manifest, current_version=self.version), self.targets()
        check_manifest(manifest, targets, targets)
        # All are checked before the first is copied.
        weights = [update.take(index, bucket) for index, bucket in enumerate(buckets)]
        version = update.finish()
        for name, tensor in itertools.chain.from_iterable(weights):
            targets[name].copy_(tensor)
        self.version = version

    def targets(self) -> dict[str, torch.Tensor]:
        """Return what an update fills, by name; a model that was moved to a device has other buffers than before."""
        state = self._model.state_dict(keep_vars=True)
        return {name: t for name, t in state.items() if self._ignore is None or not self._ignore(name)}


def _by_bucket(manifest: Manifest) -> Iterator[list[TensorEntry]]:
    for _, entries in itertools.groupby(manifest.entries, key=lambda entry: entry.bucket):
        yield list(entries)


@traced("pack_weights", "weights")
def _fill(
    bucket: torch.Tensor,
    entries: Iterable[TensorEntry],
    source: Iterator[tuple[str, torch.Tensor]],
    *,
    seed: int,
    kind: ChecksumKind,
) -> int:
    """Copy the next tensors into a bucket; return its checksum."""
    content, placed = bucket[:-SEAL_BYTES], []
    for entry in entries:
        name, tensor = next(source)
        assert name == entry.name, f"weights were planned in another order: '{entry.name}' before '{name}'"
        if kind == "words":
            view_entry(entry, bucket).copy_(tensor.detach())
        else:
            placed.append((entry.offset, entry.dtype, tensor))
    if kind == "words":
        return checksum(content, seed=seed, kind=kind)
    return fill_and_hash(content, placed, seed=seed)


def _seal_of(bucket: torch.Tensor) -> torch.Tensor:
    return bucket[-SEAL_BYTES:].view(torch.int64)


def _seed(version: int, index: int) -> int:
    return version << 24 | index


def _signed(digest: int) -> int:
    return digest - (1 << 63)
