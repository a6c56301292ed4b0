"""Updates from recorded data: the same for any micro-batch size, ranks and sharding, continued bit for bit."""

import os
from dataclasses import replace

import pytest
import torch

from rlinf.config.schema.algorithm import (
    BCLossConfig,
    DAggerLossConfig,
    EmbodiedAlgorithmConfig,
    HGDAggerLossConfig,
    IQLLossConfig,
    NoAdvantageConfig,
)
from rlinf.config.schema.data import DataConfig
from rlinf.config.schema.expert import ExpertConfig
from rlinf.config.schema.model import MLPPolicyConfig
from rlinf.config.schema.root import RLinfConfig
from rlinf.config.schema.train import ActorConfig, FSDPConfig, OptimConfig
from rlinf.data.datasets.episodes import Episode
from rlinf.data.messages.embodied import Trajectory
from rlinf.errors import DatasetError
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.models import get_model
from rlinf.scheduler.probe import find_free_port
from rlinf.workers.actor.imitation_learner import CollectingLearner, DAggerLearner
from rlinf.workers.actor.learner import learners
from tests.ranks import run_ranks

CHUNK, DIM = 3, 2
LOSSES = {
    "offline_iql": IQLLossConfig(tau=0.1),
    "embodied_bc": BCLossConfig(),
    "embodied_bc_mse": BCLossConfig(imitation_loss="mse"),
}
COLLECTING = {
    "embodied_dagger": DAggerLossConfig(expert=ExpertConfig(expert_type="none"), imitation_loss="mse", capacity=60),
    "embodied_hgdagger": HGDAggerLossConfig(imitation_loss="mse", capacity=60),
}
DATA = DataConfig(format="memory", path="memory", reward_coef=0.5)
SHARDINGS = ("no_shard", "full_shard", "shard_grad_op")


def make_episodes(states=5):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    return [
        Episode({"states": 3 + 2 * normal(n + 1, states)}, normal(n, DIM).tanh(), normal(n), terminated=n % 2 == 0)
        for n in (7, 12, 3, 8)
    ]


def make_rollout(step=0, rank=0, world_size=1, envs=8, steps=4, labels=True):
    """Return a rank's share of a rollout: every other label or intervention counts, the last environment rests."""
    generator = torch.Generator().manual_seed(step)

    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    executed = torch.ones(steps, envs, CHUNK, dtype=torch.bool)
    executed[1, 0, 1:] = executed[:, -1] = False
    none = torch.zeros(steps, envs, CHUNK, dtype=torch.bool)
    labelled = torch.arange(steps * envs).view(steps, envs) % 2 == 0
    seen = {"states": normal(steps, envs, 5), "action": normal(steps, envs, CHUNK, DIM)}
    if labels:
        seen |= {"label": normal(steps, envs, CHUNK, DIM).tanh(), "labelled": labelled, "expert_acts": labelled}
    whole = Trajectory(
        forward_inputs=seen,
        logprobs=normal(steps, envs, CHUNK, DIM),
        values=None,
        rewards=normal(steps, envs, CHUNK),
        terminations=none,
        truncations=none,
        executed=executed,
        final_values=None,
        group_ids=torch.arange(envs),
        env_ids=torch.arange(envs),
        versions=torch.zeros(steps, envs, dtype=torch.int64),
        intervened=None if labels else labelled.unsqueeze(-1) & executed,
    )
    share = envs // world_size
    return whole.envs(rank * share, (rank + 1) * share)


def make_learner(name, sharding="no_shard", rank=0, world_size=1, micro=16):
    torch.manual_seed(0)
    loss = {**LOSSES, **COLLECTING}[name]
    model = MLPPolicyConfig(
        model_type="mlp_policy",
        obs_dim=5,
        action_dim=DIM,
        num_action_chunks=CHUNK,
        hidden_dims=[16],
        add_q_head=loss.trains_q_heads,
        add_value_head=loss.trains_q_heads,
        normalize_obs=True,
    )
    actor = ActorConfig(model=model, optim=OptimConfig(lr=1e-2), global_batch_size=32, micro_batch_size=micro, seed=3)

    def make_engine(policy):
        return FSDPEngine(
            policy,
            optim=actor.optim,
            fsdp=FSDPConfig(sharding_strategy=sharding),
            precision="fp32",
            device=torch.device("cpu"),
            rank=rank,
            world_size=world_size,
        )

    algorithm = EmbodiedAlgorithmConfig(
        adv_type="none", loss_type="none", update_epoch=4, advantage=NoAdvantageConfig(), loss=loss
    )
    cfg = RLinfConfig(algorithm=algorithm, actor=actor)
    learner = learners.get(loss.learner).build(get_model(model), make_engine, cfg=cfg)
    if name not in COLLECTING:
        learner.take_data(make_episodes(), DATA)
    return learner


def weights(learner):
    state = learner.engine.model.state_dict().items()
    return {name: (t.full_tensor() if hasattr(t, "full_tensor") else t).detach().clone() for name, t in state}


def train(learner, first, last):
    engine = learner.engine
    for step in range(first, last + 1):
        if isinstance(learner, CollectingLearner):
            labels = isinstance(learner, DAggerLearner)
            learner.compute_advantages(make_rollout(step, engine.rank, engine.world_size, labels=labels))
        metrics = learner.update(step)
    return metrics


def assert_same(actual, expected, **tolerance):
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(actual[name], tensor, msg=name, **tolerance)


@pytest.mark.parametrize("name", [*LOSSES, *COLLECTING])
def test_updates_do_not_depend_on_the_micro_batch_size(name):
    expected = make_learner(name, micro=32)
    before = weights(expected)
    metrics = train(expected, 1, 2)
    assert not torch.equal(before["policy_head.0.weight"], weights(expected)["policy_head.0.weight"])
    learner = make_learner(name, micro=4)
    assert train(learner, 1, 2) == pytest.approx(metrics, rel=1e-3, abs=1e-4)
    assert_same(weights(learner), weights(expected), atol=2e-4, rtol=1e-3)


@pytest.mark.parametrize("name", [*LOSSES, *COLLECTING])
def test_a_loaded_learner_continues_bit_for_bit(name, tmp_path):
    undisturbed = make_learner(name)
    train(undisturbed, 1, 3)
    undisturbed.save(tmp_path / "actor")
    expected = train(undisturbed, 4, 5)
    resumed = make_learner(name)
    resumed.load(tmp_path / "actor")
    assert train(resumed, 4, 5) == expected
    assert_same(weights(resumed), weights(undisturbed), atol=0, rtol=0)


def test_observations_are_normalised_by_the_whole_dataset():
    states = torch.cat([episode.obs["states"][:-1] for episode in make_episodes()]).double()
    normalizer = make_learner("embodied_bc").engine.model.encoder.normalizer
    torch.testing.assert_close(normalizer.mean, states.mean(0))
    torch.testing.assert_close(normalizer.var, states.var(0, unbiased=False))


def test_target_critics_follow_the_critics_by_tau():
    learner = make_learner("offline_iql")
    learner.algorithm = replace(learner.algorithm, update_epoch=1)
    before = weights(learner)
    learner.update(1)
    after = weights(learner)
    for name in (name for name in after if name.startswith("critic.")):
        torch.testing.assert_close(after[f"target_{name}"], 0.9 * before[f"target_{name}"] + 0.1 * after[name])


def test_cloning_moves_the_policy_to_the_recorded_actions():
    learner = make_learner("embodied_bc_mse")
    first = learner.update(1)["imitation_loss"]
    assert train(learner, 2, 60)["imitation_loss"] < 0.5 * first


def test_data_of_another_task_is_refused():
    with pytest.raises(DatasetError, match=r"has 4 numbers per state; actor\.model\.obs_dim is 5"):
        make_learner("embodied_bc").take_data(make_episodes(states=4), DATA)


def test_labels_are_gathered_as_they_count_and_the_oldest_make_room():
    learner = make_learner("embodied_dagger")
    assert learner.compute_advantages(make_rollout(1)) == pytest.approx(
        {"labelled": 16 / 28, "expert_acts": 16 / 28, "expert_distance": learner_distance(1)}
    )
    assert len(learner.stored) == 0  # only the update takes them in
    learner.update(1)
    rollout, stored = make_rollout(1), learner.stored.contents()
    kept = rollout.forward_inputs["labelled"] & rollout.executed.any(-1)
    assert torch.equal(stored.actions, rollout.forward_inputs["label"][kept])
    assert torch.equal(stored.inputs["states"], rollout.forward_inputs["states"][kept])
    assert stored.lengths.tolist() == rollout.executed.sum(-1)[kept].tolist()
    assert train(learner, 2, 5)["stored"] == 60


def learner_distance(step):
    rollout = make_rollout(step)
    gaps = (rollout.forward_inputs["label"] - rollout.forward_inputs["action"]).square().mean((-2, -1))
    return float(gaps[rollout.executed.any(-1)].mean())


def test_only_interventions_are_imitated():
    learner, rollout = make_learner("embodied_hgdagger"), make_rollout(1, labels=False)
    kept = rollout.intervened.any(-1) & rollout.executed.any(-1)
    assert 0 < int(kept.sum()) < kept.numel()
    share = int(kept.sum()) / int(rollout.executed.any(-1).sum())
    assert learner.compute_advantages(rollout) == {"intervened": pytest.approx(share)}
    learner.update(1)
    stored = learner.stored.contents()
    assert torch.equal(stored.actions, rollout.forward_inputs["action"][kept])
    assert torch.equal(stored.inputs["states"], rollout.forward_inputs["states"][kept])


def test_without_any_label_nothing_is_learned():
    learner, rollout = make_learner("embodied_dagger"), make_rollout(1)
    rollout.forward_inputs["labelled"][:] = False
    before = weights(learner)
    learner.compute_advantages(rollout)
    assert learner.update(1) == {"stored": 0.0}
    assert_same(weights(learner), before, atol=0, rtol=0)


def run_rank(rank, port, folder):
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
def test_two_ranks_do_what_one_does_under_any_sharding(tmp_path):
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


def losses_of_rank(learner, batch, rank, world_size, monkeypatch):
    """Return the loss that a rank's micro-batches sum up to, for each optimizer that steps."""
    engine, losses = learner.engine, []

    def forward_backward(parts, work, *, optimizer=None):
        losses.append(sum(float(work.use(work.call(engine.model, part), part)[0].detach()) for part in parts))
        return {}

    monkeypatch.setattr(engine, "rank", rank)
    monkeypatch.setattr(engine, "world_size", world_size)
    monkeypatch.setattr(engine, "forward_backward", forward_backward)
    monkeypatch.setattr(engine, "step", lambda optimizer="policy": {})
    monkeypatch.setattr(engine, "soft_update", lambda *arguments: None)
    learner.update_once(batch)
    return losses


@pytest.mark.parametrize("name", list(LOSSES))
def test_the_mean_loss_of_two_ranks_is_the_loss_of_one(name, monkeypatch):
    learner = make_learner(name)
    batch = learner.stored.sample(32, torch.Generator().manual_seed(0))
    alone = losses_of_rank(learner, batch, 0, 1, monkeypatch)
    first, second = (losses_of_rank(learner, batch, rank, 2, monkeypatch) for rank in (0, 1))
    assert first != pytest.approx(second)
    assert [(a + b) / 2 for a, b in zip(first, second, strict=True)] == pytest.approx(alone, rel=1e-4)


@pytest.mark.parametrize("name", ["embodied_bc", "offline_iql"])
def test_only_executed_actions_are_imitated(name, monkeypatch):
    learner = make_learner(name)
    batch = learner.stored.sample(32, torch.Generator().manual_seed(0))
    assert {1, 3} <= set(batch.lengths.tolist())
    with torch.no_grad():
        evaluation = learner.policy(forward_inputs={**batch.inputs, "action": batch.actions})
    executed = torch.arange(CHUNK) < batch.lengths[:, None]
    logprobs = (evaluation.logprobs.sum(-1) * executed).sum(-1)
    if name == "offline_iql":
        seen = []
        actor_loss = learner.losses.actor_loss
        monkeypatch.setattr(
            learner.losses, "actor_loss", lambda **keys: seen.append(keys["logprobs"].detach()) or actor_loss(**keys)
        )
        losses_of_rank(learner, batch, 0, 1, monkeypatch)
        torch.testing.assert_close(torch.cat(seen), logprobs)
    else:
        (loss,) = losses_of_rank(learner, batch, 0, 1, monkeypatch)
        assert loss == pytest.approx(-float(logprobs.sum() / batch.lengths.sum()), rel=1e-4)


def test_recorded_rewards_are_scaled_and_discounted_within_a_chunk():
    episodes = make_episodes()
    loss = LOSSES["offline_iql"]
    rewards = make_learner("offline_iql").stored.contents().rewards
    first = episodes[0].rewards[:CHUNK] * loss.gamma ** torch.arange(CHUNK)
    assert loss.gamma < 1
    assert float(rewards[0]) == pytest.approx(float(DATA.reward_coef * first.sum()), rel=1e-5)


def test_every_step_draws_a_batch_of_its_own(monkeypatch):
    learner, drawn = make_learner("embodied_bc"), []
    monkeypatch.setattr(learner, "update_once", lambda batch: drawn.append(batch.actions) or {})
    learner.update(1)
    learner.update(2)
    learner.update(1)
    per_step = len(drawn) // 3
    assert not torch.equal(drawn[0], drawn[per_step])
    assert torch.equal(drawn[0], drawn[2 * per_step])


def test_each_rank_counts_its_share_of_the_data_in_the_statistics(monkeypatch):
    learner = make_learner("embodied_bc")
    new, normalizer = learner.stored.contents(), learner.engine.model.encoder.normalizer
    before = int(normalizer.count)
    monkeypatch.setattr(learner.engine, "world_size", 2)
    learner.take_transitions(new)
    assert int(normalizer.count) - before == -(-len(new) // 2)


def test_labels_count_where_there_is_one_and_something_was_executed():
    learner = make_learner("embodied_dagger")
    labelled = torch.tensor([True, True, False, False])
    executed = torch.tensor([[True] * CHUNK, [False] * CHUNK, [True] * CHUNK, [False] * CHUNK])
    kept = learner.collect({"states": torch.zeros(4, 5)}, torch.zeros(4, CHUNK, DIM), labelled, executed)
    assert kept.tolist() == [True, False, False, False]
    assert len(learner.pending) == 1


def test_rows_of_all_ranks_lie_in_the_order_of_environments(monkeypatch):
    learner = make_learner("embodied_dagger")
    whole = make_rollout(1)
    mine, other = whole.envs(4, 8), whole.envs(0, 4)
    given = iter([other.env_ids, other.rewards, other.executed.byte()])
    monkeypatch.setattr(learner.engine, "all_gather", lambda tensor: [tensor, next(given)])
    gather = learner.gather(mine)
    assert torch.equal(gather(mine.rewards), whole.rewards.flatten(0, 1))
    assert torch.equal(gather(mine.executed), whole.executed.flatten(0, 1))


def test_loading_takes_the_place_of_the_labels_that_are_there(tmp_path):
    saved, other = make_learner("embodied_dagger"), make_learner("embodied_dagger")
    train(saved, 1, 1)
    saved.save(tmp_path / "actor")
    train(other, 2, 3)
    other.load(tmp_path / "actor")
    assert torch.equal(other.stored.contents().actions, saved.stored.contents().actions)
