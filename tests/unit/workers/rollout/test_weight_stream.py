"""Weights are waited for only as long as they are needed, and the newest that have arrived are taken."""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from rlinf.config.schema.train import WeightSyncerConfig
from rlinf.errors import CommTimeoutError
from rlinf.hybrid_engines.weights.bucket import WeightReceiver
from rlinf.scheduler import Worker
from rlinf.scheduler.comm.work import AsyncWork
from rlinf.workers.rollout.weight_stream import WeightStream
from rlinf.workers.weight_inbox import WeightInbox
from rlinf.workers.weight_syncer import WeightSyncer
from tests.unit.hybrid_engines.packing import pack_weights


class Mail(WeightSyncer):
    """Messages of one sender in order, and receives that wait for them: what an inbox has of a transport."""

    def __init__(self) -> None:
        worker = SimpleNamespace(_group_name="RolloutGroup", _rank=0)
        super().__init__(cast("Worker", worker), WeightSyncerConfig())
        self.arrived, self.waiting = deque(), deque()

    def put(self, version: int, num_messages: int | None = None, left_out: tuple[str, ...] = ()) -> None:
        weights = nn.Linear(2, 2)
        for parameter in weights.parameters():
            nn.init.constant_(parameter, version)
        sent = {name: tensor for name, tensor in weights.state_dict().items() if name not in left_out}
        manifest, buckets = pack_weights(sent.items(), version=version, bucket_bytes=16)
        manifest = replace(manifest, left_out=left_out)
        assert len(buckets) == 2 - len(left_out)
        for message in (manifest, *buckets)[:num_messages]:
            if self.waiting:
                self.waiting.popleft().set_result(message)
            else:
                self.arrived.append(message)

    def send(self, message: Any, group_name: str, ranks: Sequence[int]) -> None:
        raise NotImplementedError

    def receive(self, group_name: str, rank: int, *, timeout: float | None = None) -> AsyncWork[Any]:
        assert (group_name, rank) == ("ActorGroup", 0)
        future = Future()
        if self.arrived:
            future.set_result(self.arrived.popleft())
        else:
            self.waiting.append(future)
        return AsyncWork(future)


@pytest.fixture
def mail() -> Mail:
    return Mail()


@pytest.fixture
def model() -> nn.Linear:
    return nn.Linear(2, 2)


@pytest.fixture
def stream(mail: Mail, model: nn.Linear) -> WeightStream:
    return WeightStream(WeightReceiver(model), WeightInbox(mail, "ActorGroup"))


def test_nothing_is_waited_for_while_nothing_is_needed(stream: WeightStream) -> None:
    stream.take_arrived()
    stream.wait_for(-1)
    assert stream.version == -1


def test_the_newest_weights_that_have_arrived_are_taken(stream: WeightStream, mail: Mail, model: nn.Linear) -> None:
    stream.take_arrived()
    for version in (0, 1, 2):
        mail.put(version)
    stream.take_arrived()
    assert stream.version == 2
    assert torch.equal(model.weight, torch.full((2, 2), 2.0))
    assert not mail.arrived


@pytest.mark.parametrize("partial", [(1,), (1, 2), (0, 1), (0, 2), (0,)])
def test_no_complete_update_is_passed_over(
    stream: WeightStream, mail: Mail, model: nn.Linear, partial: tuple[int, ...]
) -> None:
    mail.put(0)
    stream.wait_for(0)
    for version in range(3):
        mail.put(version + 1, left_out=("weight",) if version in partial else ())
    stream.take_arrived()
    complete = max({0, 1, 2, 3} - {version + 1 for version in partial})
    assert torch.equal(model.weight, torch.full((2, 2), float(complete)))
    assert torch.equal(model.bias, torch.full((2,), 3.0))
    assert stream.version == 3


def test_one_waits_until_the_needed_version_and_no_longer(
    stream: WeightStream, mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLINF_TIMEOUT_SECONDS", "0.05")
    mail.put(3)
    stream.wait_for(2)
    assert stream.version == 3
    with pytest.raises(CommTimeoutError):
        stream.wait_for(4)
    mail.put(4)
    stream.wait_for(4)
    assert stream.version == 4


def test_weights_of_which_a_part_is_missing_are_not_loaded(
    stream: WeightStream, mail: Mail, model: nn.Linear, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLINF_TIMEOUT_SECONDS", "0.05")
    mail.put(0)
    stream.take_arrived()
    mail.put(1, num_messages=2)
    with pytest.raises(CommTimeoutError):
        stream.take_arrived()
    assert torch.equal(model.weight, torch.zeros(2, 2))
    assert stream.version == 0
