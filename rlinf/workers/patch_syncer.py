"""``weight_syncer.type: patch``: what changed since the last update, for links that are slower than memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from rlinf.config.schema.train import WeightSyncerConfig
from rlinf.hybrid_engines.weights.bucket import Manifest, entries_of
from rlinf.hybrid_engines.weights.memory import BucketMemory
from rlinf.hybrid_engines.weights.patch import apply_patch, encode_patch
from rlinf.scheduler import Worker
from rlinf.scheduler.comm.work import default_timeout_seconds
from rlinf.workers.streams import PATCH_BASE
from rlinf.workers.weight_syncer import BucketSyncer, Receivers


class PatchSyncer(BucketSyncer):
    """Sends buckets as patches of those of the last update.

    Every owner keeps the buckets that it sent last, every receiver those that it got last, in host memory. An owner
    that could send patches announces their base; each receiver replies whether it has that. If one has not (it has been
    launched again, missed an update), all get whole buckets. Either way the owner announces what follows.

    Args:
        worker: The rank.
        cfg: The ``weight_syncer`` section.
    """

    def __init__(self, worker: Worker, cfg: WeightSyncerConfig) -> None:
        super().__init__(worker, cfg)
        # Of a sender: its own buckets. Of a receiver: all.
        self._last: Manifest | None = None
        self._kept: dict[int, torch.Tensor] = {}
        self._current: Manifest | None = None
        self._memory = BucketMemory()

    def allocate(self, num_bytes: int) -> torch.Tensor:
        """See ``WeightSyncer``; the memory is this rank's own, as the bucket is kept."""
        return self._memory.allocate(num_bytes)

    def announce(self, manifest: Manifest, receivers: Receivers) -> None:
        """See ``WeightSyncer``."""
        base, self._last = self._last, None
        if base is None or not _alike(base, manifest):
            self._kept.clear()
            self._memory.clear()
        elif self._offer(replace(manifest, base=base.version), receivers):
            manifest = replace(manifest, base=base.version)
        self._current = manifest
        super().announce(manifest, receivers)

    def publish(self, index: int, bucket: torch.Tensor, receivers: Receivers) -> None:
        """See ``WeightSyncer``."""
        manifest, base = self._current, self._kept.get(index)
        assert manifest is not None, "nothing has been announced"
        if manifest.base is None or base is None:
            self._send_all(bucket, receivers)
        else:
            self._send_all(encode_patch(base, bucket, entries_of(manifest, index)), receivers)
        self._kept[index] = bucket
        if index == max(i for i, owner in enumerate(manifest.bucket_owners) if owner == self.worker._rank):
            self._last = manifest

    def _offer(self, manifest: Manifest, receivers: Receivers) -> bool:
        """Propose patches; return whether all receivers have their base."""
        super().announce(manifest, receivers)
        # All are waited for: none is to be left for the next update.
        return all(
            [
                self._reply(manifest.version, group_name, rank)
                for group_name, ranks in receivers.items()
                for rank in ranks
            ]
        )

    def _reply(self, version: int, group_name: str, rank: int) -> bool:
        with self._noting_deaths():
            while True:
                found, has_base = self.worker.recv(group_name, rank, tag=PATCH_BASE)
                # A reply to an update that broke off may be left.
                if found == version:
                    return bool(has_base)
        return False

    def agree(self, manifest: Manifest, group_name: str, rank: int) -> Manifest:
        """See ``WeightSyncer``."""
        if manifest.base is None:
            return manifest
        last = self._last
        has_base = last is not None and last.version == manifest.base and _alike(last, manifest)
        self.worker.send((manifest.version, has_base), group_name, rank, tag=PATCH_BASE)
        message = self.receive(group_name, rank).wait(default_timeout_seconds())
        assert isinstance(message, Manifest), "a proposal is followed by an announcement"
        return message

    def unpack(self, manifest: Manifest, index: int, message: torch.Tensor) -> torch.Tensor:
        """See ``WeightSyncer``."""
        if manifest.base is None:
            return message
        return apply_patch(self._kept[index], message, entries_of(manifest, index), self._memory.allocate)

    def keep(self, manifest: Manifest, buckets: Sequence[torch.Tensor]) -> None:
        """See ``WeightSyncer``."""
        self._last, self._kept = manifest, dict(enumerate(buckets))


def _alike(one: Manifest, other: Manifest) -> bool:
    """Return whether the buckets of two updates lie alike."""
    return replace(one.content, version=other.version) == other.content
