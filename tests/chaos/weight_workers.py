"""Workers that publish and take weights, and die at a message of their choice."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch import nn

from rlinf.config.schema.train import BucketConfig, WeightSyncerConfig
from rlinf.errors import RLinfError
from rlinf.hybrid_engines.train.train_engine import TrainEngine, WeightEntry
from rlinf.hybrid_engines.weights.bucket import WeightReceiver
from rlinf.scheduler import Worker
from rlinf.workers.actor.weight_publisher import WeightPublisher
from rlinf.workers.weight_inbox import WeightInbox
from rlinf.workers.weight_syncer import WeightSyncer, make_weight_syncer

OWNERS, TAKERS = "owners", "takers"
NUM_OWNERS = 2
NUM_LAYERS, SIDE = 8, 200
# Each layer is a bucket.
BUCKET_BYTES = 4 * SIDE * SIDE


class Model(nn.Module):
    """Layers that are full of one value."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.layers = nn.ParameterList(nn.Parameter(torch.full((SIDE, SIDE), value)) for _ in range(NUM_LAYERS))


class Weights:
    """What an engine exports of such a model."""

    def __init__(self, value: float, rank: int) -> None:
        self.rank, self.state = rank, Model(value).state_dict()

    def describe_weights(self, form: str) -> Iterator[WeightEntry]:
        """See ``TrainEngine``."""
        return (WeightEntry(*named, index % NUM_OWNERS) for index, named in enumerate(self.state.items()))

    def export_weights(self, form: str, *, owned: bool) -> Iterator[tuple[str, torch.Tensor]]:
        """See ``TrainEngine``."""
        return (named for index, named in enumerate(self.state.items()) if index % NUM_OWNERS == self.rank)


def dying(function: Callable[..., Any], num_calls: int) -> Callable[..., Any]:
    """Return a function that kills this process when it is called after so many calls."""
    calls = iter(range(num_calls))

    def call(*args: Any, **options: Any) -> Any:
        if next(calls, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **options)

    return call


class WeightWorker(Worker):
    """One end."""

    def __init__(self, kind: str, num_takers: int) -> None:
        super().__init__()
        self.cfg = WeightSyncerConfig(type=kind, bucket=BucketConfig(bucket_size=BUCKET_BYTES))
        self.num_takers = num_takers
        self.syncer: WeightSyncer

    def attempt(self, method: str, *args: Any) -> str:
        """Call a method; return the type of what it raised."""
        try:
            getattr(self, method)(*args)
        except RLinfError as error:
            return type(error).__name__
        return ""


class Owner(WeightWorker):
    """Publishes half of the layers."""

    def __init__(self, kind: str, num_takers: int) -> None:
        super().__init__(kind, num_takers)
        self.publisher = WeightPublisher(self, receivers={TAKERS: num_takers}, cfg=self.cfg)
        self.syncer = self.publisher._syncer

    def publish(self, version: int, dies_after: int | None = None) -> None:
        """Publish a version; die before a message."""
        if dies_after is not None:
            self.syncer.send = dying(self.syncer.send, dies_after)  # type: ignore[method-assign]
        self.publisher.publish(cast("TrainEngine", Weights(float(version), self._rank)), version=version)


class Taker(WeightWorker):
    """Loads what is published."""

    def __init__(self, kind: str, num_takers: int) -> None:
        super().__init__(kind, num_takers)
        self.model = Model(0.0)
        self.receiver = WeightReceiver(self.model)
        self.syncer = make_weight_syncer(self, self.cfg)
        self.inbox = WeightInbox(self.syncer, OWNERS)

    def take(self, version: int, dies_after: int | None = None) -> None:
        """Take a version; die at a message."""
        if dies_after is not None:
            self.syncer.receive = dying(self.syncer.receive, dies_after)  # type: ignore[method-assign]
        self.receiver.load(*self.inbox.take(version))

    def present(self) -> tuple[int, list[float]]:
        """Return the version, and the values that the weights have."""
        return self.receiver.version, sorted({float(v) for layer in self.model.layers for v in layer.unique()})
