"""How an actor rank hands its weights to the ranks that run the policy."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Mapping

from rlinf.config.schema.train import WeightSyncerConfig
from rlinf.data.messages.routing import sources
from rlinf.hybrid_engines.train.train_engine import TrainEngine
from rlinf.hybrid_engines.weights.bucket import fill_buckets, plan_buckets
from rlinf.models.trainable import WeightForm
from rlinf.scheduler import Worker
from rlinf.workers.weight_syncer import make_weight_syncer


class WeightPublisher:
    """Sends the weights to the receiving ranks that one actor rank serves.

    Args:
        worker: The actor rank.
        receivers: World sizes of the receiving groups, by their names.
        cfg: The ``weight_syncer`` section.
    """

    def __init__(self, worker: Worker, *, receivers: Mapping[str, int], cfg: WeightSyncerConfig) -> None:
        self._worker, self._bucket_bytes = worker, cfg.bucket.bucket_size
        self._syncer = make_weight_syncer(worker, cfg)
        rank, size = worker._rank, worker._world_size
        served = {
            group: [receiver for receiver in range(count) if sources(receiver, size, count).peers[0] == rank]
            for group, count in receivers.items()
        }
        self._ranks = {group: ranks for group, ranks in served.items() if ranks}

    def publish(self, engine: TrainEngine, *, version: int, form: WeightForm = "merged") -> None:
        """Send weights; every actor rank calls this together.

        Args:
            engine: Holds them.
            version: Step of the run that produced them.
            form: What is sent of a model with adapters.
        """
        weights = engine.export_weights(form)
        if not self._ranks:
            # Every rank has its part in making tensors whole.
            collections.deque(weights, maxlen=0)
            return
        manifest = plan_buckets(
            engine.describe_weights(form),
            version=version,
            bucket_bytes=self._bucket_bytes,
            is_partial=form == "adapters",
        )
        for message in itertools.chain([manifest], fill_buckets(manifest, weights, self._worker.shared_buffer)):
            for group, ranks in self._ranks.items():
                self._syncer.send(message, group, ranks)
