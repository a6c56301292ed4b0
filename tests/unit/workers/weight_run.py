"""Actor ranks that publish weights, and a rank that receives them, in one process."""

from __future__ import annotations

from typing import Any, cast

import torch

from rlinf.config.schema.train import BucketConfig, WeightSyncerConfig
from rlinf.hybrid_engines.train.train_engine import TrainEngine, WeightEntry
from rlinf.hybrid_engines.weights.bucket import Manifest, view_entry
from rlinf.scheduler import Worker
from rlinf.workers.actor.weight_publisher import WeightPublisher
from rlinf.workers.streams import WEIGHTS
from rlinf.workers.weight_inbox import WeightInbox
from rlinf.workers.weight_syncer import make_weight_syncer
from tests.unit.workers.post_office import PostOffice

SIZES = {"a": 9, "b": 40, "c": 3, "d": 17, "e": 30}
CFG = WeightSyncerConfig(bucket=BucketConfig(bucket_size=128))


class Rank(Worker):
    """Sends and receives."""

    def shared_buffer(self, num_bytes: int) -> torch.Tensor:
        """Return memory for a bucket."""
        return torch.zeros(num_bytes, dtype=torch.uint8)

    def send(self, obj: Any, *args: Any, **options: Any) -> Any:
        """Send a copy: memory may be reused as soon as this returns."""
        return super().send(obj.clone() if isinstance(obj, torch.Tensor) else obj, *args, **options)


class Weights:
    """What the engine of one of several ranks exports."""

    def __init__(self, value: float, rank: int, owners: tuple[int, ...]) -> None:
        self.rank, self.owners = rank, owners
        self.weights = {name: torch.full((size,), value) for name, size in SIZES.items()}

    def describe_weights(self, form: str) -> list[WeightEntry]:
        """See ``TrainEngine``."""
        return [WeightEntry(*named, owner) for named, owner in zip(self.weights.items(), self.owners, strict=True)]

    def export_weights(self, form: str, *, owned: bool) -> Any:
        """See ``TrainEngine``."""
        assert owned
        return (named for named, owner in zip(self.weights.items(), self.owners, strict=True) if owner == self.rank)


class Run:
    """Actor ranks that publish, and one rank that receives.

    Args:
        owners: Actor rank of each tensor.
        cfg: The ``weight_syncer`` section.
    """

    def __init__(self, owners: tuple[int, ...], cfg: WeightSyncerConfig = CFG) -> None:
        self.office, self.owners, self.cfg = PostOffice(), owners, cfg
        self.ranks = sorted({0, *owners})
        self.publishers = {
            rank: WeightPublisher(self.worker("ActorGroup", rank), receivers={"RolloutGroup": 1}, cfg=cfg)
            for rank in self.ranks
        }
        self.inbox = self.new_inbox()

    def new_inbox(self) -> WeightInbox:
        """Return the inbox of a receiver that was just launched."""
        return WeightInbox(make_weight_syncer(self.worker("RolloutGroup", 0), self.cfg), "ActorGroup")

    def worker(self, group: str, rank: int) -> Worker:
        """Return a worker that sends and receives here."""
        return cast("Worker", self.office.wire(Rank, group=group, rank=rank))

    def publish(self, version: int, *, value: float | None = None, ranks: tuple[int, ...] | None = None) -> None:
        """Publish weights that are full of a value, the version's number if there is none."""
        for rank in self.ranks if ranks is None else ranks:
            weights = Weights(float(version) if value is None else value, rank, self.owners)
            self.publishers[rank].publish(cast("TrainEngine", weights), version=version)

    def waiting(self, rank: int) -> Any:
        """The messages of a rank that have not been received."""
        return self.office.messages[("ActorGroup", rank), ("RolloutGroup", 0), WEIGHTS]


def values(update: tuple[Manifest, list[torch.Tensor]]) -> dict[str, float]:
    """Return the value that each tensor is full of."""
    manifest, buckets = update
    views = {entry.name: view_entry(entry, buckets[entry.bucket]) for entry in manifest.entries}
    assert all(len(view.unique()) == 1 and len(view) == SIZES[name] for name, view in views.items())
    return {name: float(view[0]) for name, view in views.items()}
