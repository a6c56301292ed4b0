"""Updates arrive whole, from all owners, or not at all; what is left of others is passed over."""

from __future__ import annotations

from typing import cast

import pytest
import torch

from rlinf.config.schema.train import BucketConfig, WeightSyncerConfig
from rlinf.errors import CommTimeoutError, WeightSyncError
from rlinf.hybrid_engines.train.train_engine import TrainEngine
from rlinf.workers import weight_inbox
from rlinf.workers.actor.weight_publisher import WeightPublisher
from tests.unit.workers.weight_run import CFG, SIZES, Run, Weights, values

OWNERS = [(0, 0, 0, 0, 0), (1, 1, 1, 1, 1), (0, 1, 0, 1, 0), (2, 0, 1, 2, 2)]


@pytest.fixture(params=OWNERS, ids=str)
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("RLINF_TIMEOUT_SECONDS", "0.05")
    return Run(request.param)


def test_an_update_comes_from_all_of_its_owners(run: Run) -> None:
    assert not run.inbox.has_arrived()
    for version in (3, 4):
        run.publish(version)
        assert run.inbox.has_arrived()
        manifest, buckets = run.inbox.take(version)
        assert (manifest.version, manifest.is_checked, manifest.is_lasting) == (version, True, True)
        assert values((manifest, buckets)) == dict.fromkeys(SIZES, float(version))
        assert not run.inbox.has_arrived()


def test_updates_that_wait_are_taken_one_by_one(run: Run) -> None:
    for version in (1, 2):
        run.publish(version)
    assert [run.inbox.take()[0].version for _ in range(2)] == [1, 2]


@pytest.mark.parametrize("version", [4, 6])
def test_an_update_of_another_version_is_refused(run: Run, version: int) -> None:
    run.publish(version)
    with pytest.raises(WeightSyncError, match=f"version 5, received version {version}"):
        run.inbox.take(5)
    run.publish(5 if version == 4 else 7)
    assert values(run.inbox.take(5 if version == 4 else 7))


def test_a_sender_may_die_between_any_two_messages(run: Run) -> None:
    run.publish(1)
    counts = {rank: len(run.waiting(rank)) for rank in run.ranks}
    run.inbox.take(1)
    version = 1
    for rank in run.ranks:
        for num_sent in range(counts[rank]):
            version += 1
            run.publish(version)
            for _ in range(counts[rank] - num_sent):
                run.waiting(rank).pop()
            with pytest.raises(CommTimeoutError):
                run.inbox.take(version)
            # A receive that is given up takes no message.
            run.office.waiting.clear()
            version += 1
            run.publish(version)
            assert values(run.inbox.take(version)) == dict.fromkeys(SIZES, float(version))


def test_a_damaged_bucket_is_refused_and_what_follows_is_passed_over(run: Run) -> None:
    for rank in sorted(set(run.owners)):
        run.publish(2)
        run.waiting(rank)[-1][0] ^= 1
        with pytest.raises(WeightSyncError, match="wrong checksum"):
            run.inbox.take(2)
        run.publish(3)
        assert values(run.inbox.take(3)) == dict.fromkeys(SIZES, 3.0)


def test_ranks_that_publish_different_weights_are_found() -> None:
    run = Run((0, 1, 0, 1, 0))
    run.publish(2, ranks=(0,))
    run.publish(3, ranks=(1,))
    with pytest.raises(WeightSyncError, match=r"ActorGroup:0 and ActorGroup:1 .*versions 2 and 3"):
        run.inbox.take()


def test_a_rank_that_owns_nothing_sends_nothing() -> None:
    run = Run((0, 0, 0, 0, 0))
    other = WeightPublisher(run.worker("ActorGroup", 1), receivers={"RolloutGroup": 1}, cfg=CFG)
    other.publish(cast("TrainEngine", Weights(1.0, 1, run.owners)), version=1)
    assert not run.waiting(1)


def test_weights_are_published_in_the_precision_of_the_receivers() -> None:
    run = Run((0, 0, 0, 0, 0))
    publisher = WeightPublisher(
        run.worker("ActorGroup", 0), receivers={"RolloutGroup": 1}, cfg=CFG, dtype=torch.bfloat16
    )
    weights = Weights(1.001, 0, run.owners)
    publisher.publish(cast("TrainEngine", weights), version=1)
    manifest, buckets = run.inbox.take(1)
    assert {entry.dtype for entry in manifest.entries} == {torch.bfloat16}
    assert values((manifest, buckets)) == dict.fromkeys(SIZES, 1.0)
    assert all(torch.equal(tensor, torch.full_like(tensor, 1.001)) for tensor in weights.weights.values())


def test_buckets_of_a_device_are_checked_there_and_end_with_their_owner() -> None:
    cfg = WeightSyncerConfig(bucket=BucketConfig(bucket_size=128, bucket_device="cuda"))
    # Without an accelerator, the actor's device is the host.
    run = Run((0, 1, 0, 1, 0), cfg)
    run.publish(1)
    update = run.inbox.take(1)
    assert values(update) == dict.fromkeys(SIZES, 1.0)
    assert update[0].checksum_kind == "words"
    run.publish(2)
    damaged = next(m for m in run.waiting(1) if isinstance(m, torch.Tensor))
    damaged[3] ^= 1
    with pytest.raises(WeightSyncError, match="checksum"):
        run.inbox.take(2)


def test_parameters_are_no_views_of_a_device_s_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run((0, 0, 0, 0, 0))
    run.publish(1)
    assert run.inbox.take(1)[0].is_lasting
    run.publish(2)
    monkeypatch.setattr(run.inbox, "_take_message", lambda *_: torch.zeros(8, dtype=torch.uint8, device="meta"))
    monkeypatch.setattr(weight_inbox, "check_bucket", lambda *_: None)
    assert not run.inbox.take(2)[0].is_lasting
