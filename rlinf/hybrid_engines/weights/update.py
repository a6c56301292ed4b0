"""One update of a model's weights, bucket by bucket: what has come, and what is still missing."""

from __future__ import annotations

import torch

from rlinf.errors import WeightSyncError
from rlinf.hybrid_engines.weights.bucket import Manifest, check_bucket, view_entry


class WeightUpdate:
    """Takes the buckets of a manifest in any order, each checked before anything of it is used.

    Args:
        manifest: What the sender announced.
        current_version: Version that the receiver has.

    Raises:
        WeightSyncError: The manifest's version is an older one.
    """

    def __init__(self, manifest: Manifest, *, current_version: int) -> None:
        if manifest.version < current_version:
            raise WeightSyncError(f"Weights of version {manifest.version} arrived after version {current_version}.")
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
        check_bucket(self.manifest, index, bucket)
        self._received.add(index)
        return [(e.name, view_entry(e, bucket)) for e in self.manifest.entries if e.bucket == index]

    def finish(self) -> None:
        """End the update.

        Raises:
            WeightSyncError: A bucket is missing; the message says which.
        """
        missing = sorted(set(range(self._num_buckets)) - self._received)
        if missing:
            raise WeightSyncError(
                f"Received {len(self._received)} of {self._num_buckets} weight buckets of version "
                f"{self.manifest.version}; missing: {', '.join(map(str, missing))}. Send the update again."
            )
