"""How an actor rank hands its weights to the ranks that run the policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from rlinf.config.schema.train import WeightSyncerConfig
from rlinf.hybrid_engines.train.train_engine import TrainEngine
from rlinf.hybrid_engines.weights.bucket import Manifest, Receiver, fill_buckets, plan_buckets
from rlinf.models.trainable import WeightForm
from rlinf.scheduler import Worker
from rlinf.workers.relays import plan_relays
from rlinf.workers.weight_syncer import make_weight_syncer


class WeightPublisher:
    """Sends the weights that one actor rank owns to all receiving ranks.

    Args:
        worker: The actor rank.
        receivers: World sizes of the receiving groups, by their names.
        cfg: The ``weight_syncer`` section.
        dtype: In which floating-point weights are published; None publishes the master weights as they are.
    """

    def __init__(
        self,
        worker: Worker,
        *,
        receivers: Mapping[str, int],
        cfg: WeightSyncerConfig,
        dtype: torch.dtype | None = None,
    ) -> None:
        self._worker, self._bucket_bytes, self._dtype = worker, cfg.bucket.bucket_size, dtype
        self._is_on_host = cfg.bucket.bucket_device == "cpu"
        self._syncer = make_weight_syncer(worker, cfg)
        self._receivers = {group: range(count) for group, count in receivers.items()}
        self._plans: dict[WeightForm, Manifest] = {}

    def publish(self, engine: TrainEngine, *, version: int, form: WeightForm = "merged") -> None:
        """Send weights; every actor rank calls this together.

        Args:
            engine: Holds them; its tensors have the same names, shapes and owners in every call.
            version: Step of the run that produced them.
            form: What is sent; ``trained`` if all receivers have the rest.

        Raises:
            WorkerDiedError: A receiver is gone; the others have been sent all weights.
        """
        rank, relays = self._worker._rank, self._plan_relays()
        if form not in self._plans:
            self._plans[form] = self._plan(engine, form)
        manifest = replace(self._plans[form], version=version, relays=tuple(relays.items()))
        weights = engine.export_weights(form, owned=True)
        buckets = fill_buckets(manifest, weights, self._syncer.allocate, owner=rank)
        # Receivers wait for the announcement of rank 0, and of every other rank that sends something.
        if rank in {0, *manifest.bucket_owners}:
            self._syncer.announce(manifest, self._receivers)
        direct = {
            group_name: [rank for rank in ranks if (group_name, rank) not in relays]
            for group_name, ranks in self._receivers.items()
        }
        indices = (index for index, owner in enumerate(manifest.bucket_owners) if owner == rank)
        for index, bucket in zip(indices, buckets, strict=True):
            self._syncer.publish(index, bucket, {group_name: ranks for group_name, ranks in direct.items() if ranks})
        self._syncer.finish()

    def _plan(self, engine: TrainEngine, form: WeightForm) -> Manifest:
        described, left_out = list(engine.describe_weights(form)), []
        if form == "trained":
            sent = {entry.name for entry in described}
            left_out = [entry.name for entry in engine.describe_weights("parts") if entry.name not in sent]
        plan = plan_buckets(
            ((entry.name, entry.tensor) for entry in described),
            version=0,
            bucket_bytes=self._bucket_bytes,
            owners=(entry.owner for entry in described),
            dtype=self._dtype,
            left_out=left_out,
        )
        return plan if self._is_on_host else replace(plan, checksum_kind="words")

    def _plan_relays(self) -> dict[Receiver, Receiver]:
        nodes = {group_name: self._worker.find_nodes(group_name) for group_name in self._receivers}
        return plan_relays(self._worker.node_id, nodes)
