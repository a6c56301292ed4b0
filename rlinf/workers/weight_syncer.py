"""How the messages of a weight update travel from actor to rollout; ``weight_syncer.type`` chooses."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from rlinf.config.registries import weight_syncers
from rlinf.config.schema.train import WeightSyncerConfig
from rlinf.errors import WorkerDiedError
from rlinf.hybrid_engines.weights.bucket import Manifest
from rlinf.scheduler import Worker
from rlinf.scheduler.comm.work import AsyncWork
from rlinf.workers.streams import WEIGHTS

Receivers = Mapping[str, Sequence[int]]
"""Ranks by the name of their group."""


class WeightSyncer(abc.ABC):
    """One rank's end of the transport of weight updates; a plug-in's derives from it.

    The messages of an update are a ``Manifest``, then its buckets (``rlinf.hybrid_engines.weights.bucket``). They
    arrive whole and in order at every receiving rank. A plug-in implements ``send`` and ``receive``; one that sends
    something else than buckets overrides the other methods, too.

    Args:
        worker: The rank.
        cfg: The ``weight_syncer`` section.
    """

    def __init__(self, worker: Worker, cfg: WeightSyncerConfig) -> None:
        self.worker = worker
        self.cfg = cfg
        self._death: WorkerDiedError | None = None

    @abc.abstractmethod
    def send(self, message: Any, group_name: str, ranks: Sequence[int]) -> None:
        """Send a message; its memory may be reused as soon as this returns.

        Args:
            message: A ``Manifest``, or a bucket: uint8 [bytes].
            group_name: The receiving group.
            ranks: Its ranks that this rank serves.
        """

    @abc.abstractmethod
    def receive(self, group_name: str, rank: int, *, timeout: float | None = None) -> AsyncWork[Any]:
        """Begin to receive the next message.

        Args:
            group_name: The sending group.
            rank: The rank that serves this one.
            timeout: Seconds; None for the default of ``Worker.recv``.
        """

    # What a sender does

    def allocate(self, num_bytes: int) -> torch.Tensor:
        """Return uint8 memory for a bucket; on the host, or on this rank's device."""
        if self.cfg.bucket.bucket_device == "cpu":
            return self.worker.shared_buffer(num_bytes)
        return torch.empty(num_bytes, dtype=torch.uint8, device=self.worker.device)

    def announce(self, manifest: Manifest, receivers: Receivers) -> None:
        """Begin an update.

        Args:
            manifest: Of all ranks' buckets.
            receivers: Who gets it.
        """
        self._send_all(manifest, receivers)

    def publish(self, index: int, bucket: torch.Tensor, receivers: Receivers) -> None:
        """Send a bucket of the update that has begun.

        Args:
            index: Of the bucket in the manifest; they come in the manifest's order.
            bucket: What ``allocate`` returned, filled and sealed.
            receivers: Who gets it.
        """
        self._send_all(bucket, receivers)

    def _send_all(self, message: Any, receivers: Receivers) -> None:
        for group_name, ranks in receivers.items():
            with self._noting_deaths():
                self.send(message, group_name, ranks)

    @contextlib.contextmanager
    def _noting_deaths(self) -> Iterator[None]:
        """Keep the death of a receiver for ``finish``: the others wait for the rest of the update."""
        try:
            yield
        except WorkerDiedError as error:
            self._death = self._death or error

    def finish(self) -> None:
        """End the update that has been sent.

        Raises:
            WorkerDiedError: A receiver is gone; the others have been sent all of it.
        """
        death, self._death = self._death, None
        if death is not None:
            raise death

    # What a receiver does

    def agree(self, manifest: Manifest, group_name: str, rank: int) -> Manifest:
        """Return what a sender's announcement leads to.

        Args:
            manifest: The announcement.
            group_name: The sending group.
            rank: The sender.
        """
        return manifest

    def unpack(self, manifest: Manifest, index: int, message: torch.Tensor) -> torch.Tensor:
        """Return a bucket, unchecked.

        Args:
            manifest: What ``agree`` returned for its sender.
            index: Of the bucket.
            message: What has arrived in its place.
        """
        return message

    def keep(self, manifest: Manifest, buckets: Sequence[torch.Tensor]) -> None:
        """Take notice of an update that has arrived whole and has been checked.

        Args:
            manifest: The update's.
            buckets: All of them, in memory that does not change.
        """
        return


class BucketSyncer(WeightSyncer):
    """``weight_syncer.type: bucket``: by the workers' own sends and receives."""

    def send(self, message: Any, group_name: str, ranks: Sequence[int]) -> None:
        """See ``WeightSyncer``; what lies on a device goes to one rank at a time, each by the way that suits it."""
        if isinstance(message, torch.Tensor) and message.device.type != "cpu":
            for rank in ranks:
                self.worker.send(message, group_name, rank, tag=WEIGHTS)
        else:
            self.worker.send(message, group_name, list(ranks), tag=WEIGHTS)

    def receive(self, group_name: str, rank: int, *, timeout: float | None = None) -> AsyncWork[Any]:
        """See ``WeightSyncer``."""
        work: AsyncWork[Any] = self.worker.recv(group_name, rank, async_op=True, tag=WEIGHTS, timeout=timeout)
        return work


def make_weight_syncer(worker: Worker, cfg: WeightSyncerConfig) -> WeightSyncer:
    """Build a rank's end of the transport that ``cfg.type`` names."""
    syncer: WeightSyncer = weight_syncers.get(cfg.type)(worker, cfg)
    return syncer
