"""Updates from a replay: the same for any micro-batch size and sharding, continued bit for bit, agreed by all ranks."""

import dataclasses
import os
from pathlib import Path
from typing import Any, NoReturn

import pytest
import torch
from off_policy_toys import (
    ENVS,
    LOSS,
    STEPS,
    assert_same,
    changed,
    make_learner,
    make_trajectory,
    train,
    weights,
)

from rlinf.config.schema.algorithm import EntropyTuningConfig, ReplayBufferConfig
from rlinf.config.schema.optim import AdamWConfig
from rlinf.errors import CheckpointError, NumericalError
from rlinf.scheduler.probe import find_free_port
from rlinf.workers.actor.learner import Learner
from tests.ranks import run_ranks


def test_updates_do_not_depend_on_the_micro_batch_size() -> None:
    expected = make_learner(micro=32)
    train(expected, 1, 2)
    for micro in (1, 8):
        learner = make_learner(micro=micro)
        train(learner, 1, 2)
        assert_same(weights(learner), weights(expected), atol=2e-4, rtol=1e-3)


def test_the_replay_fills_before_anything_is_learned() -> None:
    loss = dataclasses.replace(LOSS, replay_buffer=ReplayBufferConfig(capacity=200, min_buffer_size=STEPS * ENVS + 1))
    learner = make_learner(loss)
    before = weights(learner)
    executed = make_trajectory().executed.any(-1)
    assert learner.compute_advantages(make_trajectory())["chunk_reward"] != 0
    assert learner.update(1) == {"replay_size": STEPS * ENVS}
    assert int(learner.engine.model.encoder.normalizer.count) == int(executed.sum())
    assert not changed(before, weights(learner), ("policy", "critic", "target", "temperature"))
    metrics = train(learner, 2, 2)
    assert learner.updates_made == 4
    assert {"critic_loss", "actor_loss", "alpha", "entropy", "critic_grad_norm", "policy_grad_norm"} <= metrics.keys()
    assert metrics["critic_lr"] == pytest.approx(3e-3)
    assert metrics["policy_lr"] == pytest.approx(1e-2)


def test_the_share_of_interventions_is_told() -> None:
    trajectory = make_trajectory()
    intervened = torch.zeros_like(trajectory.executed)
    intervened[0, :3] = True
    learner = make_learner()
    assert "intervened" not in learner.compute_advantages(trajectory)
    count = int(trajectory.executed.any(-1).sum())
    metrics = learner.compute_advantages(dataclasses.replace(trajectory, intervened=intervened))
    assert metrics["intervened"] == pytest.approx(3 / count)


def test_the_policy_learns_once_for_so_many_updates_of_the_critics() -> None:
    learner = make_learner(dataclasses.replace(LOSS, critic_actor_ratio=3), updates=2)
    before = weights(learner)
    train(learner, 1, 1)
    middle = weights(learner)
    assert changed(before, middle, "critic")
    assert not changed(before, middle, ("policy_head", "temperature"))
    train(learner, 2, 2)  # the third update, counted over steps
    assert changed(middle, weights(learner), "policy_head")
    assert changed(middle, weights(learner), "temperature")
    assert learner.engine.optimizers["policy"].num_steps == 1
    assert learner.engine.optimizers["critic"].num_steps == 4


def test_target_critics_follow_the_critics_by_tau() -> None:
    learner = make_learner(dataclasses.replace(LOSS, tau=0.25), updates=1)
    before = weights(learner)
    train(learner, 1, 1)
    after = weights(learner)
    for name in (name for name in after if name.startswith("critic.")):
        expected = 0.75 * before[f"target_{name}"] + 0.25 * after[name]
        torch.testing.assert_close(after[f"target_{name}"], expected)


def test_target_critics_move_only_so_often() -> None:
    learner = make_learner(dataclasses.replace(LOSS, target_update_freq=3), updates=2)
    before = weights(learner)
    train(learner, 1, 1)
    assert not changed(before, weights(learner), "target_critic")
    train(learner, 2, 2)
    assert changed(before, weights(learner), "target_critic")


def test_a_fixed_temperature_stays() -> None:
    tuning = EntropyTuningConfig(alpha_type="fixed_alpha", initial_alpha=0.3)
    learner = make_learner(dataclasses.replace(LOSS, entropy_tuning=tuning))
    assert train(learner, 1, 2)["alpha"] == pytest.approx(0.3)


@pytest.mark.parametrize("ratio", [1, 3])
def test_a_loaded_learner_continues_bit_for_bit(ratio: int, tmp_path: Path) -> None:
    loss = dataclasses.replace(LOSS, critic_actor_ratio=ratio, target_update_freq=3)
    undisturbed = make_learner(loss, updates=2)
    train(undisturbed, 1, 5)
    undisturbed.save(tmp_path / "actor")
    expected = train(undisturbed, 6, 7)
    resumed = make_learner(loss, updates=2)
    resumed.load(tmp_path / "actor")
    assert train(resumed, 6, 7) == expected
    assert_same(weights(resumed), weights(undisturbed), atol=0, rtol=0)


def test_a_step_that_was_only_prepared_leaves_no_trace(tmp_path: Path) -> None:
    undisturbed, interrupted = make_learner(), make_learner()
    for learner in (undisturbed, interrupted):
        train(learner, 1, 2)
    interrupted.compute_advantages(make_trajectory(30))
    interrupted.save(tmp_path / "actor")
    resumed = make_learner()
    resumed.load(tmp_path / "actor")
    assert train(resumed, 3, 3) == train(undisturbed, 3, 3)
    assert_same(weights(resumed), weights(undisturbed), atol=0, rtol=0)


def test_a_checkpoint_without_a_replay_says_what_to_do(tmp_path: Path) -> None:
    learner = make_learner()
    learner.engine.save(tmp_path / "actor")
    with pytest.raises(CheckpointError, match=r"runner\.ckpt_path"):
        learner.load(tmp_path / "actor")


def test_a_reward_that_is_not_finite_is_an_error() -> None:
    trajectory = make_trajectory()
    trajectory.rewards[3, 2, 0] = float("nan")
    with pytest.raises(NumericalError, match="Rewards are not finite"):
        make_learner().compute_advantages(trajectory)


def draws_of_equal_replays(sharding: str, rank: int) -> list[Any]:
    """Return the rewards that a rank draws in two steps from a replay that holds the same on every rank."""
    learner = make_learner(sharding=sharding, rank=rank, world_size=2, updates=1, micro=8)
    sample, drawn = learner.replay.sample, []

    def record(count: int, generator: Any) -> Any:
        rows = sample(count, generator)
        drawn.append(rows.rewards)
        return rows

    learner.replay.sample = record
    for step in (1, 2):
        learner.compute_advantages(make_trajectory())
        learner.update(step)
    assert not torch.equal(drawn[0], drawn[2])
    return drawn


def run_rank(rank: int, port: int, folder: Path) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    results = {}
    for sharding in ("no_shard", "full_shard", "shard_grad_op"):
        learner = make_learner(sharding=sharding, rank=rank, world_size=2, micro=8)
        resting = make_trajectory()
        resting.executed[:] = rank == 0
        learner.compute_advantages(resting)
        not_ready = learner.update(1)  # rank 1 has nothing to draw from
        train(learner, 2, 3, rank)
        learner.save(folder / sharding)
        metrics = train(learner, 4, 4, rank)
        resumed = make_learner(sharding=sharding, rank=rank, world_size=2, micro=8)
        resumed.load(folder / sharding)
        again = train(resumed, 4, 4, rank)
        drawn = draws_of_equal_replays(sharding, rank)
        results[sharding] = {
            "not_ready": not_ready,
            "metrics": metrics,
            "again": again,
            "weights": weights(learner),
            "resumed": weights(resumed),
            "size": len(learner.replay),
            "drawn": drawn,
        }
    torch.save(results, folder / f"rank{rank}.pt")


@pytest.mark.timeout(240)
def test_two_ranks_agree_under_any_sharding_and_resume_under_another_number(tmp_path: Path) -> None:
    run_ranks(run_rank, find_free_port(), tmp_path)
    first, second = (torch.load(tmp_path / f"rank{rank}.pt", weights_only=False) for rank in (0, 1))
    expected = first["no_shard"]
    for sharding in ("no_shard", "full_shard", "shard_grad_op"):
        for result in (first[sharding], second[sharding]):
            assert result["not_ready"] == {"replay_size": STEPS * ENVS}
            assert result["metrics"] == first[sharding]["metrics"] == result["again"]
            assert_same(result["weights"], expected["weights"], atol=1e-4, rtol=1e-3)
            assert_same(result["resumed"], result["weights"], atol=0, rtol=0)
        assert first[sharding]["size"] == 100  # half of the capacity
        alone = make_learner()
        alone.load(tmp_path / sharding)
        assert len(alone.replay) == 100 + 96  # what both held when they saved
        assert not any(
            torch.equal(a, b) for a, b in zip(first[sharding]["drawn"], second[sharding]["drawn"], strict=True)
        )


class Halves:
    """Stands for the other one of two ranks, which holds as much of everything, but another entropy."""

    def __init__(self, learner: Learner[Any], entropy: Any) -> None:
        self.learner, self.entropy = learner, entropy

    def __call__(self, tensor: torch.Tensor) -> Any:
        return tensor + torch.tensor([self.entropy, 1.0])


def temperature_steps(
    entropies: list[tuple[float, float]], clip_grad: float = 1e9, lr: float = 1e-2
) -> tuple[list[Any], list[Any]]:
    """Update the temperature with entropies of this rank and another one; return raw temperatures and gradients."""
    tuning = EntropyTuningConfig(optim=AdamWConfig(lr=lr, clip_grad=clip_grad, weight_decay=0.0), target_entropy=-2.0)
    learner = make_learner(dataclasses.replace(LOSS, entropy_tuning=tuning))
    raw, gradients = learner.losses.temperature.raw, []
    values = [raw.item()]
    for mine, other in entropies:
        learner.losses.temperature.update({"entropy": torch.tensor([mine, 1.0])}, Halves(learner, other))
        values.append(raw.item())
        gradients.append(raw.grad.item())
    return values, gradients


def test_the_temperature_follows_the_mean_entropy_of_all_ranks() -> None:
    for (mine, other), rises in {(-1.0, -5.0): True, (-1.0, -2.0): False, (-3.0, 2.0): False}.items():
        values, _ = temperature_steps([(mine, other)])
        assert (values[1] > values[0]) == rises


def test_the_temperatures_gradient_is_that_of_one_update_and_is_clipped() -> None:
    values, gradients = temperature_steps([(-4.0, -6.0), (-4.0, -6.0)])
    # d/draw of -softplus(raw) (log pi + target) with a mean log-probability of 5.
    for value, gradient in zip(values, gradients, strict=False):
        slope = torch.sigmoid(torch.tensor(value)).item()
        assert gradient == pytest.approx(-slope * (5.0 - 2.0), rel=1e-5)
    assert temperature_steps([(-4.0, -6.0)], clip_grad=0.25)[1] == [-0.25]
    assert temperature_steps([(4.0, 6.0)], clip_grad=0.25)[1] == [0.25]


def test_the_temperature_its_optimizer_and_its_schedule_are_restored(tmp_path: Path) -> None:
    learner, resumed = make_learner(), make_learner()
    train(learner, 1, 2)
    learner.save(tmp_path / "actor")
    resumed.load(tmp_path / "actor")
    mine, other = learner.losses.temperature.optimizer, resumed.losses.temperature.optimizer
    assert torch.equal(resumed.losses.temperature.raw, learner.losses.temperature.raw)
    assert other.num_steps == mine.num_steps == 8
    assert resumed.updates_made == 8
    state, restored = (optimizer.adam.state_dict()["state"][0] for optimizer in (mine, other))
    assert state.keys() == restored.keys()
    assert all(torch.equal(state[name], restored[name]) for name in state)


def test_rewards_of_executed_actions_are_discounted_within_a_chunk() -> None:
    learner = make_learner(dataclasses.replace(LOSS, gamma=0.5))
    trajectory = make_trajectory()
    learner.compute_advantages(trajectory)
    rewards = (trajectory.rewards * trajectory.executed * torch.tensor([1.0, 0.5, 0.25])).sum(-1)
    assert sorted(learner.pending.rewards.tolist()) == pytest.approx(sorted(rewards.flatten().tolist()), rel=1e-5)


@pytest.mark.parametrize("method", ["_update_critics", "_update_policy"])
def test_gradients_do_not_grow_with_the_batch(method: str) -> None:
    norms = {}
    for batch in (16, 32):
        learner = make_learner(updates=1)
        learner.compute_advantages(make_trajectory())
        learner._take_pending()
        learner.actor = dataclasses.replace(learner.actor, global_batch_size=batch)
        rows = learner.replay.sample(16, torch.Generator().manual_seed(0))
        noise = torch.zeros(16, *learner.policy.noise_shape)
        learner._draw = lambda _, part=(rows, noise), batch=batch: ([part] * (batch // 16), batch)
        arguments = (None, None) if method == "_update_critics" else (None,)
        metrics = getattr(learner, method)(*arguments)
        norms[batch] = float(metrics[f"{'critic' if 'critics' in method else 'policy'}_grad_norm"][0])
    assert norms[16] == pytest.approx(norms[32], rel=1e-4)


def test_draws_differ_from_step_to_step_and_from_rank_to_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make_learner(updates=1)
    learner.compute_advantages(make_trajectory())
    learner._take_pending()
    seeds = []
    monkeypatch.setattr(learner, "_draw", lambda generator: seeds.append(generator.initial_seed()) or _stop())
    monkeypatch.setattr(learner, "_take_pending", lambda: None)
    monkeypatch.setattr(learner, "_readiness", lambda: (48, True))
    for step, rank in ((1, 0), (2, 0), (1, 1)):
        learner.engine.rank = rank
        with pytest.raises(StopIteration):
            learner.update(step)
    assert len(set(seeds)) == 3


def _stop() -> NoReturn:
    raise StopIteration


def test_a_chunk_counts_as_intervention_as_soon_as_somebody_took_part() -> None:
    trajectory = make_trajectory()
    intervened = torch.zeros_like(trajectory.executed)
    intervened[0, 2, 1] = True
    learner = make_learner()
    learner.compute_advantages(dataclasses.replace(trajectory, intervened=intervened))
    assert int(learner.intervened.sum()) == 1


def test_the_replays_of_all_ranks_together_must_hold_enough() -> None:
    loss = dataclasses.replace(LOSS, replay_buffer=ReplayBufferConfig(capacity=200, min_buffer_size=2 * STEPS * ENVS))
    learner = make_learner(loss)
    learner.compute_advantages(make_trajectory())
    learner._take_pending()
    learner.engine.world_size = 2
    learner.engine.all_reduce = lambda tensor: 2 * tensor  # the other rank holds as much
    assert learner._readiness() == (2 * STEPS * ENVS, True)
    learner.engine.all_reduce = lambda tensor: tensor  # the other rank holds nothing
    assert learner._readiness() == (STEPS * ENVS, False)


def test_observations_of_both_states_are_augmented() -> None:
    learner = make_learner()
    learner.compute_advantages(make_trajectory())
    learner._take_pending()
    learner.policy.augment = lambda seen, generator: {name: tensor + 100.0 for name, tensor in seen.items()}
    batches, _ = learner._draw(torch.Generator().manual_seed(0))
    for rows, _ in batches:
        assert rows.inputs["states"].min() > 50.0
        assert rows.next_inputs["states"].min() > 50.0


def test_both_optimizers_count_their_own_steps(tmp_path: Path) -> None:
    loss = dataclasses.replace(LOSS, critic_actor_ratio=2)
    learner, resumed = make_learner(loss), make_learner(loss)
    train(learner, 1, 1)
    learner.save(tmp_path / "actor")
    resumed.load(tmp_path / "actor")
    steps = {name: optimizer.num_steps for name, optimizer in resumed.engine.optimizers.items()}
    assert steps == {"policy": 2, "critic": 4}
