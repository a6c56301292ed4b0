"""How the messages of a weight update travel from actor to rollout; ``weight_syncer.type`` chooses."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any

from rlinf.config.registries import weight_syncers
from rlinf.config.schema.train import WeightSyncerConfig
from rlinf.scheduler import Worker
from rlinf.scheduler.comm.work import AsyncWork
from rlinf.workers.streams import WEIGHTS


class WeightSyncer(abc.ABC):
    """One rank's end of the transport of weight updates; a plug-in's derives from it.

    The messages of an update are a ``Manifest``, then its buckets (``rlinf.hybrid_engines.weights.bucket``). They
    arrive whole and in order at every receiving rank.

    Args:
        worker: The rank.
        cfg: The ``weight_syncer`` section.
    """

    def __init__(self, worker: Worker, cfg: WeightSyncerConfig) -> None:
        self.worker = worker
        self.cfg = cfg

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


class BucketSyncer(WeightSyncer):
    """``weight_syncer.type: bucket``: by the workers' own sends and receives."""

    def send(self, message: Any, group_name: str, ranks: Sequence[int]) -> None:
        """See ``WeightSyncer``."""
        self.worker.send(message, group_name, list(ranks), tag=WEIGHTS)

    def receive(self, group_name: str, rank: int, *, timeout: float | None = None) -> AsyncWork[Any]:
        """See ``WeightSyncer``."""
        work: AsyncWork[Any] = self.worker.recv(group_name, rank, async_op=True, tag=WEIGHTS, timeout=timeout)
        return work


def make_weight_syncer(worker: Worker, cfg: WeightSyncerConfig) -> WeightSyncer:
    """Build a rank's end of the transport that ``cfg.type`` names."""
    syncer: WeightSyncer = weight_syncers.get(cfg.type)(worker, cfg)
    return syncer
