"""How a rank that runs the policy receives its weights: whole and checked, before any of them is used."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from rlinf.errors import WeightSyncError
from rlinf.hybrid_engines.weights.bucket import Manifest, Receiver, check_bucket
from rlinf.scheduler.comm.work import AsyncWork, default_timeout_seconds
from rlinf.telemetry.trace import traced
from rlinf.workers.weight_syncer import WeightSyncer

_NO_TIMEOUT_SECONDS = 1e9
"""An announcement is waited for while the actor trains, when nothing is due."""


class WeightInbox:
    """Updates of weights from the ranks of the actor group.

    Each rank that owns weights sends the manifest, then its buckets. On other nodes receivers take them from one
    another and pass them on, as the manifest says. What is left of an update that broke off is passed over.

    Args:
        syncer: This rank's end of the transport.
        group_name: The actor group.
    """

    def __init__(self, syncer: WeightSyncer, group_name: str) -> None:
        self._syncer = syncer
        self._address = (syncer.worker._group_name, syncer.worker._rank)
        self._group_name = group_name
        self._announcement: AsyncWork[Any] | None = None

    def has_arrived(self) -> bool:
        """Whether an update has been announced that has not been taken."""
        if self._announcement is None:
            self._announcement = self._begin(self._origin(0))
        return self._announcement.done()

    @traced("receive_weights", "weights")
    def take(self, version: int | None = None) -> tuple[Manifest, list[torch.Tensor]]:
        """Receive the next update.

        Args:
            version: That it must have; None takes any.

        Returns:
            The manifest and its buckets, uint8, in order; all of them checked, in memory that does not change. They are
            on the host, or where the owners filled them on their devices, on this rank's own.

        Raises:
            WeightSyncError: It has another version, a bucket is damaged, or its owners disagree. Nothing is lost but
                this update.
            WorkerDiedError: An owner is gone.
            CommTimeoutError: A part of it did not come in time.
        """
        found = self._next_manifest(self._origin(0))
        manifest = found.content
        if version is not None:
            manifest.check_version(version)
        announced = {0: self._agree(0, found)}
        for owner in sorted(set(manifest.bucket_owners) - {0}):
            announced[owner] = self._agree(owner, self._announced_by(owner, manifest))
        buckets = []
        for index, owner in enumerate(manifest.bucket_owners):
            message = self._take_message(owner, announced[owner])
            buckets.append(self._syncer.unpack(announced[owner], index, message))
            check_bucket(manifest, index, buckets[index])
        self._syncer.keep(manifest, buckets)
        # What lies on a device may be the owner's memory, and gone with it.
        is_lasting = all(bucket.device.type == "cpu" for bucket in buckets)
        return replace(manifest, is_checked=True, is_lasting=is_lasting), buckets

    def _announced_by(self, owner: int, manifest: Manifest) -> Manifest:
        """Return what another owner announces of the same update."""
        found = self._next_manifest(self._origin(owner), manifest.version)
        if found.content != manifest:
            raise WeightSyncError(
                f"{self._group_name}:0 and {self._group_name}:{owner} publish different weights (versions "
                f"{manifest.version} and {found.version}); every rank must hold the same model and step."
            )
        return found

    def _agree(self, owner: int, announced: Manifest) -> Manifest:
        """Return what an owner will send, once this rank's source has begun with it and those behind it know."""
        manifest = self._syncer.agree(announced, self._group_name, owner)
        source = self._source(owner, manifest)
        if source != self._origin(owner):
            self._next_manifest(source, manifest.version)
        self._pass_on(manifest, manifest)
        return manifest

    def _take_message(self, owner: int, manifest: Manifest) -> torch.Tensor:
        message: torch.Tensor = self._begin(self._source(owner, manifest)).wait(default_timeout_seconds())
        self._pass_on(message, manifest)
        return message

    def _pass_on(self, message: Any, manifest: Manifest) -> None:
        for (group_name, rank), source in manifest.relays:
            if source == self._address:
                self._syncer.send(message, group_name, [rank])

    def _source(self, owner: int, manifest: Manifest) -> Receiver:
        return dict(manifest.relays).get(self._address, self._origin(owner))

    def _origin(self, owner: int) -> Receiver:
        return self._group_name, owner

    def _next_manifest(self, source: Receiver, version: int = -1) -> Manifest:
        """Return the next announcement of a rank, of this version or a later one."""
        while True:
            is_first = source == self._origin(0)
            work = self._announcement if is_first else None
            message = (work or self._begin(source)).wait(default_timeout_seconds())
            if is_first:
                self._announcement = None
            if isinstance(message, Manifest) and message.version >= version:
                return message

    def _begin(self, source: Receiver) -> AsyncWork[Any]:
        return self._syncer.receive(*source, timeout=_NO_TIMEOUT_SECONDS)
