"""How weight updates travel: by the workers' own sends, or by what a plug-in registers."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.registries import weight_syncers
from rlinf.config.schema.train import BucketConfig, WeightSyncerConfig
from rlinf.errors import ConfigError
from rlinf.hybrid_engines.train.train_engine import WeightEntry
from rlinf.hybrid_engines.weights.bucket import Manifest
from rlinf.scheduler import Worker
from rlinf.scheduler.comm.work import AsyncWork
from rlinf.workers.actor.weight_publisher import WeightPublisher
from rlinf.workers.weight_syncer import WeightSyncer, make_weight_syncer


class SpyWorker:
    """Rank 0 of one; keeps what it sends."""

    _rank, _world_size = 0, 1
    node_id = "node"
    device = torch.device("meta")

    def __init__(self) -> None:
        self.sent: list[tuple[Any, ...]] = []
        self.received: list[tuple[Any, ...]] = []

    def send(self, message: Any, group: str, ranks: list[int] | int, *, tag: str) -> None:
        self.sent.append((type(message), group, ranks, tag))

    def recv(self, group: str, rank: int, *, async_op: bool, tag: str, timeout: float | None) -> str:
        self.received.append((group, rank, async_op, tag, timeout))
        return "work"

    def find_nodes(self, group: str) -> list[str]:
        return [self.node_id] * 2

    def shared_buffer(self, num_bytes: int) -> torch.Tensor:
        return torch.empty(num_bytes, dtype=torch.uint8)


def engine() -> Any:
    """Two weights that fill a bucket each."""
    weights = {name: torch.full((16,), float(number)) for number, name in enumerate(("a", "b"))}
    return SimpleNamespace(
        export_weights=lambda form, owned: iter(weights.items()),
        describe_weights=lambda form: (WeightEntry(*named) for named in weights.items()),
    )


def publish(cfg: WeightSyncerConfig, worker: SpyWorker) -> None:
    publisher = WeightPublisher(cast("Worker", worker), receivers={"RolloutGroup": 2}, cfg=cfg)
    publisher.publish(engine(), version=3)


def test_a_manifest_and_its_buckets_go_to_every_served_rank() -> None:
    worker = SpyWorker()
    publish(WeightSyncerConfig(bucket=BucketConfig(bucket_size=80)), worker)
    tag = worker.sent[0][-1]
    assert worker.sent == [(kind, "RolloutGroup", [0, 1], tag) for kind in (Manifest, torch.Tensor, torch.Tensor)]
    syncer = make_weight_syncer(cast("Worker", worker), WeightSyncerConfig())
    assert cast("object", syncer.receive("ActorGroup", 1, timeout=2.0)) == "work"
    assert worker.received == [("ActorGroup", 1, True, tag, 2.0)]


def test_what_lies_on_a_device_goes_to_one_rank_at_a_time() -> None:
    worker = SpyWorker()
    cfg = WeightSyncerConfig(bucket=BucketConfig(bucket_device="cuda"))
    syncer = make_weight_syncer(cast("Worker", worker), cfg)
    bucket = syncer.allocate(80)
    assert (bucket.device, bucket.nbytes, bucket.dtype) == (worker.device, 80, torch.uint8)
    syncer.publish(0, bucket, {"RolloutGroup": [0, 1]})
    assert [(group, ranks) for _, group, ranks, _ in worker.sent] == [("RolloutGroup", 0), ("RolloutGroup", 1)]
    assert make_weight_syncer(cast("Worker", worker), WeightSyncerConfig()).allocate(80).device.type == "cpu"


def test_a_plug_in_carries_the_same_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_syncers, "_entries", dict(weight_syncers._entries))
    overrides = ["weight_syncer.type=pigeon"]
    with pytest.raises(
        ConfigError, match=r"weight_syncer\.type: received 'pigeon' \(a string\); allowed: one of bucket, patch"
    ):
        validate_cfg(load_recipe("gym_cartpole_ppo_mlp", overrides))
    carried: list[tuple[type, str, Sequence[int]]] = []

    @weight_syncers.register("pigeon")
    class Pigeon(WeightSyncer):
        def send(self, message: Any, group_name: str, ranks: Sequence[int]) -> None:
            carried.append((type(message), group_name, ranks))

        def receive(self, group_name: str, rank: int, *, timeout: float | None = None) -> AsyncWork[Any]:
            raise NotImplementedError

    worker = SpyWorker()
    publish(validate_cfg(load_recipe("gym_cartpole_ppo_mlp", overrides)).weight_syncer, worker)
    assert [kind for kind, *_ in carried] == [Manifest, torch.Tensor]
    assert worker.sent == []
