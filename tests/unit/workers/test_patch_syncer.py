"""Patches are sent where all receivers have their base, and whole buckets where one has not."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlinf.config import load_recipe, validate_cfg
from rlinf.errors import CommTimeoutError, ConfigError, WeightSyncError, WorkerDiedError
from rlinf.hybrid_engines.train.train_engine import TrainEngine
from rlinf.hybrid_engines.weights.bucket import Manifest
from rlinf.workers.actor.weight_publisher import WeightPublisher
from rlinf.workers.streams import WEIGHTS
from rlinf.workers.weight_inbox import WeightInbox
from tests.unit.workers.weight_run import CFG, SIZES, Run, Weights, values

PATCH = replace(CFG, type="patch")


class DeathError(Exception):
    """A sender is gone."""


class PatchRun(Run):
    """Notes the bytes of buckets and patches; senders wait for replies, so they run next to the receiver."""

    def __init__(self, owners: tuple[int, ...]) -> None:
        super().__init__(owners, PATCH)
        self.num_bytes, self.delivered = 0, []
        post = self.office.post

        def count(source: Any, target: Any, tag: Any, message: Any) -> None:
            if tag == WEIGHTS and isinstance(message, torch.Tensor):
                self.num_bytes += message.nbytes
            post(source, target, tag, message)

        self.office.post = count  # type: ignore[method-assign]

    def sync(self, version: int, value: float, inbox: WeightInbox | None = None) -> int:
        """Bring the receiver to new weights; return the bytes that were sent."""
        self.num_bytes = 0
        senders = [threading.Thread(target=self.publish_from, args=(rank, version, value)) for rank in self.ranks]
        for sender in senders:
            sender.start()
        try:
            found = values((inbox or self.inbox).take(version))
        finally:
            for sender in senders:
                sender.join()
        assert found == dict.fromkeys(SIZES, value)
        return self.num_bytes

    def publish_from(self, rank: int, version: int, value: float) -> None:
        """Publish what a rank owns."""
        weights = cast("TrainEngine", Weights(value, rank, self.owners))
        with contextlib.suppress(DeathError):
            self.publishers[rank].publish(weights, version=version)


OWNERS = [(0, 0, 0, 0, 0), (1, 1, 1, 1, 1), (2, 0, 1, 2, 2)]


@pytest.fixture(params=OWNERS, ids=str)
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> PatchRun:
    monkeypatch.setenv("RLINF_TIMEOUT_SECONDS", "5")
    return PatchRun(request.param)


def test_what_did_not_change_is_not_sent(run: PatchRun) -> None:
    whole = run.sync(1, 1.0)
    assert run.sync(2, 1.0) < whole / 2
    assert run.sync(3, 2.0) > whole / 2
    assert run.sync(4, 2.0) < whole / 2


def test_a_receiver_that_was_launched_again_gets_whole_buckets(run: PatchRun) -> None:
    whole = run.sync(1, 1.0)
    run.inbox = run.new_inbox()
    assert run.sync(2, 1.0) == whole
    assert run.sync(3, 1.0) < whole / 2


def test_a_receiver_that_missed_an_update_gets_whole_buckets(run: PatchRun) -> None:
    other = run.new_inbox()
    whole = run.sync(1, 1.0)
    run.sync(2, 1.0, other)
    assert run.sync(3, 1.0) == whole
    assert run.sync(4, 1.0) < whole / 2


def test_an_owner_that_was_launched_again_sends_whole_buckets(run: PatchRun) -> None:
    run.sync(1, 1.0)
    again = PatchRun(run.owners)
    run.publishers = {rank: again.publishers[rank] for rank in run.ranks}
    for rank in run.ranks:
        run.publishers[rank]._syncer.worker = run.worker("ActorGroup", rank)
    assert run.sync(2, 3.0) > 0
    assert run.sync(3, 3.0) < run.sync(4, -3.0)


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["sync", "relaunch", "miss"]), st.sampled_from([0.0, -0.0, 1.0, 2.5])), max_size=8
    )
)
def test_whatever_happens_the_weights_are_those_that_were_published(steps: list[tuple[str, float]]) -> None:
    run = PatchRun((0, 1, 0, 1, 0))
    for version, (event, value) in enumerate(steps, start=1):
        if event == "relaunch":
            run.inbox = run.new_inbox()
        run.sync(version, value, run.new_inbox() if event == "miss" else None)


def test_a_damaged_patch_is_refused_and_the_next_update_is_whole(run: PatchRun, monkeypatch: Any) -> None:
    whole = run.sync(1, 1.0)
    kept = [bucket.clone() for bucket in run.inbox._syncer._kept.values()]  # type: ignore[attr-defined]
    unpack = run.inbox._syncer.unpack

    def damage(manifest: Manifest, index: int, message: torch.Tensor) -> torch.Tensor:
        return unpack(manifest, index, message.clone().index_fill_(0, torch.tensor(len(message) - 1), 7))

    with monkeypatch.context() as damaged:
        damaged.setattr(run.inbox._syncer, "unpack", damage)
        with pytest.raises(WeightSyncError, match="wrong checksum"):
            run.sync(2, 1.5)
    now = list(run.inbox._syncer._kept.values())  # type: ignore[attr-defined]
    assert all(torch.equal(one, other) for one, other in zip(kept, now, strict=True))
    assert run.sync(3, 1.5) == whole


def test_a_sender_that_dies_between_any_two_messages_leaves_the_previous_version(monkeypatch: Any) -> None:
    monkeypatch.setenv("RLINF_TIMEOUT_SECONDS", "0.2")
    num_messages = 4
    for num_sent in range(1, num_messages):
        run = PatchRun((0, 0, 0, 0, 0))
        run.sync(1, 1.0)
        syncer = run.publishers[0]._syncer
        send, sent = syncer.send, list[Any]()

        def die(*message: Any, send: Any = send, sent: list[Any] = sent, limit: int = num_sent) -> None:
            if len(sent) >= limit:
                raise DeathError
            sent.append(message)
            send(*message)

        syncer.send = die  # type: ignore[method-assign]
        with pytest.raises(CommTimeoutError):
            run.sync(2, 2.0)
        syncer.send = send  # type: ignore[method-assign]
        run.office.waiting.clear()
        # What has arrived of the broken update is what the next one consists of.
        assert run.sync(3, 2.0)


def test_policies_that_run_ahead_get_whole_buckets() -> None:
    overrides = ["weight_syncer.type=patch", "algorithm.staleness_threshold=1"]
    with pytest.raises(ConfigError, match=r"weight_syncer\.type: received patch; .*weight_syncer\.type=bucket"):
        validate_cfg(load_recipe("gym_cartpole_ppo_mlp", overrides))
    assert validate_cfg(load_recipe("gym_cartpole_ppo_mlp", overrides[:1])).weight_syncer.type == "patch"


@pytest.mark.parametrize("kind", ["bucket", "patch"])
def test_a_receiver_that_dies_leaves_the_others_with_a_whole_update(kind: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("RLINF_TIMEOUT_SECONDS", "5")
    run = PatchRun((0, 0, 0, 0, 0))
    run.cfg = replace(CFG, type=kind)
    publisher = WeightPublisher(run.worker("ActorGroup", 0), receivers={"RolloutGroup": 2}, cfg=run.cfg)
    run.publishers, run.inbox = {0: publisher}, run.new_inbox()
    worker, gone = publisher._syncer.worker, WorkerDiedError("it is gone", group="RolloutGroup", rank=1)
    send, recv = worker.send, worker.recv

    def send_to_living(message: Any, group: str, ranks: list[int], **options: Any) -> None:
        send(message, group, [rank for rank in ranks if rank == 0], **options)
        if 1 in ranks:
            raise gone

    def recv_from_living(group: str, rank: int, **options: Any) -> Any:
        if rank == 1:
            raise gone
        return recv(group, rank, **options)

    worker.send, worker.recv = send_to_living, recv_from_living  # type: ignore[method-assign,assignment]
    raised = []

    def publish(version: int) -> None:
        try:
            run.publish(version)
        except WorkerDiedError as error:
            raised.append(error)

    for version in (1, 2):
        sender = threading.Thread(target=publish, args=(version,))
        sender.start()
        assert values(run.inbox.take(version)) == dict.fromkeys(SIZES, float(version))
        sender.join()
    assert raised == [gone, gone]
