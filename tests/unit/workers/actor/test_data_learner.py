"""Updates from recorded data: the same for any micro-batch size, ranks and sharding, continued bit for bit."""

import os
from pathlib import Path

import pytest
import torch
from data_toys import (
    COLLECTING,
    DATA,
    LOSSES,
    assert_same,
    losses_of_rank,
    make_episodes,
    make_learner,
    make_rollout,
    train,
    weights,
)

from rlinf.errors import DatasetError
from rlinf.scheduler.probe import find_free_port
from tests.ranks import run_ranks

SHARDINGS = ("no_shard", "full_shard", "shard_grad_op")


@pytest.mark.parametrize("name", [*LOSSES, *COLLECTING])
def test_updates_do_not_depend_on_the_micro_batch_size(name: str) -> None:
    expected = make_learner(name, micro=32)
    before = weights(expected)
    metrics = train(expected, 1, 2)
    assert not torch.equal(before["policy_head.0.weight"], weights(expected)["policy_head.0.weight"])
    learner = make_learner(name, micro=4)
    assert train(learner, 1, 2) == pytest.approx(metrics, rel=1e-3, abs=1e-4)
    assert_same(weights(learner), weights(expected), atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("name", [*LOSSES, *COLLECTING])
def test_a_loaded_learner_continues_bit_for_bit(name: str, tmp_path: Path) -> None:
    undisturbed = make_learner(name)
    train(undisturbed, 1, 3)
    undisturbed.save(tmp_path / "actor")
    expected = train(undisturbed, 4, 5)
    resumed = make_learner(name)
    resumed.load(tmp_path / "actor")
    assert train(resumed, 4, 5) == expected
    assert_same(weights(resumed), weights(undisturbed), atol=0, rtol=0)


def test_observations_are_normalised_by_the_whole_dataset() -> None:
    states = torch.cat([episode.obs["states"][:-1] for episode in make_episodes()]).double()
    normalizer = make_learner("embodied_bc").engine.model.encoder.normalizer
    torch.testing.assert_close(normalizer.mean, states.mean(0))
    torch.testing.assert_close(normalizer.var, states.var(0, unbiased=False))


def test_data_of_another_task_is_refused() -> None:
    with pytest.raises(DatasetError, match=r"has 4 numbers per state; actor\.model\.obs_dim is 5"):
        make_learner("embodied_bc").take_data(make_episodes(states=4), DATA)


def run_rank(rank: int, port: int, folder: Path) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    results = {}
    for name in ("offline_iql", *COLLECTING):
        for sharding in SHARDINGS:
            learner = make_learner(name, sharding=sharding, rank=rank, world_size=2, micro=8)
            metrics = train(learner, 1, 2)
            learner.save(folder / name / sharding)
            results[name, sharding] = metrics, weights(learner)
    torch.save(results, folder / f"rank{rank}.pt")


@pytest.mark.timeout(240)
def test_two_ranks_do_what_one_does_under_any_sharding(tmp_path: Path) -> None:
    run_ranks(run_rank, find_free_port(), tmp_path)
    results = [torch.load(tmp_path / f"rank{rank}.pt", weights_only=False) for rank in (0, 1)]
    for name in ("offline_iql", *COLLECTING):
        alone = make_learner(name)
        metrics = train(alone, 1, 2)
        for sharding in SHARDINGS:
            for rank_metrics, rank_weights in (result[name, sharding] for result in results):
                assert rank_metrics == pytest.approx(metrics, rel=1e-3, abs=1e-4)
                assert_same(rank_weights, weights(alone), atol=2e-4, rtol=1e-3)
            resumed = make_learner(name)
            resumed.load(tmp_path / name / sharding)
            assert_same(weights(resumed), results[0][name, sharding][1], atol=0, rtol=0)


@pytest.mark.parametrize("name", list(LOSSES))
def test_the_mean_loss_of_two_ranks_is_the_loss_of_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner(name)
    batch = learner.stored.sample(32, torch.Generator().manual_seed(0))
    alone = losses_of_rank(learner, batch, 0, 1, monkeypatch)
    first, second = (losses_of_rank(learner, batch, rank, 2, monkeypatch) for rank in (0, 1))
    assert first != pytest.approx(second)
    assert [(a + b) / 2 for a, b in zip(first, second, strict=True)] == pytest.approx(alone, rel=1e-4)


def test_every_step_draws_a_batch_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, drawn = make_learner("embodied_bc"), []
    monkeypatch.setattr(learner, "update_once", lambda batch: drawn.append(batch.actions) or {})
    learner.update(1)
    learner.update(2)
    learner.update(1)
    per_step = len(drawn) // 3
    assert not torch.equal(drawn[0], drawn[per_step])
    assert torch.equal(drawn[0], drawn[2 * per_step])


def test_each_rank_counts_its_share_of_the_data_in_the_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner("embodied_bc")
    new, normalizer = learner.stored.contents(), learner.engine.model.encoder.normalizer
    before = int(normalizer.count)
    monkeypatch.setattr(learner.engine, "world_size", 2)
    learner.take_transitions(new)
    assert int(normalizer.count) - before == -(-len(new) // 2)


def test_rows_of_all_ranks_lie_in_the_order_of_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner("embodied_dagger")
    whole = make_rollout(1)
    mine, other = whole.envs(4, 8), whole.envs(0, 4)
    given = iter([other.env_ids, other.rewards, other.executed.byte()])
    monkeypatch.setattr(learner.engine, "all_gather", lambda tensor: [tensor, next(given)])
    gather = learner.gather(mine)
    assert torch.equal(gather(mine.rewards), whole.rewards.flatten(0, 1))
    assert torch.equal(gather(mine.executed), whole.executed.flatten(0, 1))
