"""How an actor rank hands its weights to the ranks that run the policy."""

from __future__ import annotations

import collections
import itertools

from rlinf.data.routing import sources
from rlinf.hybrid_engines.train.base import TrainEngine
from rlinf.hybrid_engines.weights.bucket import fill_buckets, plan_buckets
from rlinf.scheduler import Worker
from rlinf.workers.streams import WEIGHTS


class WeightPublisher:
    """Sends the weights to the receiving ranks that one actor rank serves.

    Args:
        worker: The actor rank.
        group: Name of the receiving group.
        num_receivers: Its world size.
        bucket_bytes: Size at which a bucket is closed.
    """

    def __init__(self, worker: Worker, *, group: str, num_receivers: int, bucket_bytes: int) -> None:
        self._worker, self._group, self._bucket_bytes = worker, group, bucket_bytes
        rank, size = worker._rank, worker._world_size
        self._ranks = [r for r in range(num_receivers) if sources(r, size, num_receivers).peers[0] == rank]

    def publish(self, engine: TrainEngine, *, version: int) -> None:
        """Send all weights; every actor rank calls this together.

        Args:
            engine: Holds them.
            version: Step of the run that produced them.
        """
        weights = engine.export_weights()
        if not self._ranks:
            # Every rank has its part in making tensors whole.
            collections.deque(weights, maxlen=0)
            return
        manifest = plan_buckets(engine.describe_weights(), version=version, bucket_bytes=self._bucket_bytes)
        for message in itertools.chain([manifest], fill_buckets(manifest, weights, self._worker.shared_buffer)):
            self._worker.send(message, self._group, self._ranks, tag=WEIGHTS)
