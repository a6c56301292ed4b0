"""What TD3, CrossQ and RLPD ask of the learner beyond SAC."""

import dataclasses
import os
import shutil

import pytest
import torch
from off_policy_toys import LOSS, assert_same, changed, make_learner, make_trajectory, train, weights

from rlinf.config.schema.algorithm import CrossQLossConfig, DemoBufferConfig, TD3LossConfig
from rlinf.data.replay.buffer import ReplayBuffer, Transitions
from rlinf.errors import DatasetError
from rlinf.models.base_policy import ForwardType
from rlinf.scheduler.probe import find_free_port
from rlinf.workers.actor.demonstrations import Demonstrations
from tests.ranks import run_ranks

CROSSQ_LOSS = CrossQLossConfig(**{f.name: getattr(LOSS, f.name) for f in dataclasses.fields(LOSS)})
TD3_LOSS = TD3LossConfig(tau=0.1, replay_buffer=LOSS.replay_buffer, critic_actor_ratio=2, target_update_freq=2)


def make_td3(**keys):
    return make_learner(TD3_LOSS, loss_type="embodied_td3", deterministic=True, **keys)


def make_crossq(**keys):
    return make_learner(CROSSQ_LOSS, loss_type="embodied_crossq", q_head_type="crossq", **keys)


@pytest.fixture(scope="module")
def demos(tmp_path_factory):
    path = tmp_path_factory.mktemp("demos") / "demos"
    replay = ReplayBuffer(1000)
    trajectory = make_trajectory(99)
    trajectory.rewards[:] = 50.0
    replay.add(Transitions.from_trajectory(trajectory, gamma=0.0))
    replay.save(path)
    return path


def make_rlpd(demos, **keys):
    demo_buffer = DemoBufferConfig(load_path=str(demos), batch_share=0.5)
    loss = dataclasses.replace(LOSS, demo_buffer=demo_buffer, num_min_q=2)
    return make_learner(loss, num_q_heads=5, q_head_type="layer_norm", **keys)


def test_td3_does_not_depend_on_the_micro_batch_size():
    expected = make_td3(micro=32)
    train(expected, 1, 2)
    learner = make_td3(micro=8)
    train(learner, 1, 2)
    assert_same(weights(learner), weights(expected), atol=2e-4, rtol=1e-3)


def test_td3_delays_policy_and_all_targets():
    learner = make_td3(updates=1)
    before = weights(learner)
    train(learner, 1, 1)
    middle = weights(learner)
    assert changed(before, middle, "critic")
    assert not changed(before, middle, ("policy_head", "target_"))
    metrics = train(learner, 2, 2)
    after = weights(learner)
    assert changed(middle, after, "policy_head")
    for name in (name for name in after if name.startswith("target_")):
        expected = 0.9 * middle[name] + 0.1 * after[name.removeprefix("target_")]
        torch.testing.assert_close(after[name], expected)
    assert {"actor_loss", "critic_loss"} <= metrics.keys()
    assert not {"alpha", "entropy"} & metrics.keys()


def test_crossq_moves_critics_without_targets():
    learner = make_crossq(micro=32)
    before = weights(learner)
    train(learner, 1, 1)
    assert changed(before, weights(learner), "critic.layers.0.mean")
    assert int(weights(learner)["critic.layers.0.updates"]) == 4


@pytest.mark.parametrize("name", ["td3", "crossq", "rlpd"])
def test_a_loaded_learner_continues_bit_for_bit(name, demos, tmp_path):
    make = {"td3": make_td3, "crossq": make_crossq, "rlpd": lambda **keys: make_rlpd(demos, **keys)}[name]
    undisturbed = make(micro=32, updates=3)
    train(undisturbed, 1, 3)
    undisturbed.save(tmp_path / "actor")
    expected = train(undisturbed, 4, 5)
    resumed = make(micro=32, updates=3)
    resumed.load(tmp_path / "actor")
    assert train(resumed, 4, 5) == expected
    assert_same(weights(resumed), weights(undisturbed), atol=0, rtol=0)


def test_rlpd_draws_half_of_each_batch_from_demonstrations(demos):
    learner = make_rlpd(demos)
    train(learner, 1, 1)
    batches, share = learner._draw(torch.Generator().manual_seed(0))
    rewards = torch.cat([rows.rewards for rows, _ in batches])
    assert len(rewards) == share == 32
    assert int((rewards == 50.0).sum()) == 16
    assert len(learner.replay) == len(learner.demos)  # nothing was added to the demonstrations


def intervene(trajectory):
    intervened = torch.zeros_like(trajectory.executed)
    intervened[1, 2:5, 0] = True
    trajectory.rewards[1, 2:5] = 50.0
    return dataclasses.replace(trajectory, intervened=intervened)


@pytest.mark.parametrize("also_saved", [False, True])
def test_interventions_are_demonstrations_too(demos, tmp_path, also_saved):
    demo_buffer = DemoBufferConfig(load_path=str(demos) if also_saved else None, interventions=True)
    loss = dataclasses.replace(LOSS, gamma=0.0, demo_buffer=demo_buffer)
    learner = make_learner(loss)
    learner.compute_advantages(make_trajectory())
    learner.update(1)
    num_saved = len(learner.demos)
    assert num_saved == (len(learner.replay) if also_saved else 0)

    def rewards_drawn():
        batches, _ = learner._draw(torch.Generator().manual_seed(0))
        return torch.cat([rows.rewards for rows, _ in batches])

    assert int((rewards_drawn() == 50.0).sum()) == (16 if also_saved else 0)
    learner.compute_advantages(intervene(make_trajectory(1)))
    assert len(learner.demos) == num_saved  # only the update takes them in
    learner.update(2)
    assert len(learner.demos) == num_saved + 3
    assert learner.demos.interventions.contents().rewards.tolist() == [50.0] * 3
    assert int((rewards_drawn() == 50.0).sum()) >= 16
    learner.save(tmp_path / "actor")
    resumed = make_learner(loss)
    resumed.load(tmp_path / "actor")
    for step in (3, 4):
        results = []
        for one in (learner, resumed):
            one.compute_advantages(intervene(make_trajectory(step)))
            results.append(one.update(step))
        assert results[0] == results[1]
    assert_same(weights(resumed), weights(learner), atol=0, rtol=0)


def test_demonstrations_of_another_environment_are_an_error(tmp_path):
    replay = ReplayBuffer(10)
    other = Transitions.from_trajectory(make_trajectory(), gamma=0.99)
    replay.add(dataclasses.replace(other, inputs={"states": other.inputs["states"][:, :4]}))
    replay.save(tmp_path / "demos")
    with pytest.raises(DatasetError, match=r"demo_buffer\.load_path has for inputs\.states .*\[4\]"):
        make_rlpd(tmp_path / "demos").compute_advantages(make_trajectory())


def test_rlpd_forms_targets_of_some_critics_that_all_ranks_agree_on(demos):
    drawn = [make_rlpd(demos, updates=20)._sample_members(step) for step in (1, 1, 2)]
    as_lists = [[chosen.tolist() for chosen in members] for members in drawn]
    assert as_lists[0] == as_lists[1] != as_lists[2]
    assert all(len(set(chosen)) == 2 for chosen in as_lists[0])
    assert {head for chosen in as_lists[0] for head in chosen} == set(range(5))


def train_on_shared_batches(rank, ranks, sharding):
    """Train CrossQ on the same batches for any number of ranks; return what was learned."""
    micro = 32 // ranks
    learner = make_crossq(sharding=sharding, rank=rank, world_size=ranks, micro=micro, updates=3)
    replay, generator = ReplayBuffer(1000), torch.Generator().manual_seed(7)
    replay.add(Transitions.from_trajectory(make_trajectory(1), gamma=0.99))

    def draw(_):
        rows = replay.sample(32, generator)
        noise = torch.randn(rows.actions.shape, generator=generator)
        part = slice(rank * micro, (rank + 1) * micro)
        return [(rows.map(lambda x: x[part]), noise[part])], micro

    learner._draw = draw
    train(learner, 1, 2)
    return {name: tensor for name, tensor in weights(learner).items() if name != "encoder.normalizer.count"}


def run_rank(rank, port, folder):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    results = {sharding: train_on_shared_batches(rank, 2, sharding) for sharding in ("no_shard", "full_shard")}
    torch.save(results, folder / f"crossq_{rank}.pt")
    for name, make in {"td3": make_td3, "rlpd": lambda **keys: make_rlpd(folder / "demos", **keys)}.items():
        learned = {}
        for sharding in ("no_shard", "full_shard"):
            learner = make(sharding=sharding, rank=rank, world_size=2, micro=8, updates=2)
            train(learner, 1, 2, rank)
            learned[sharding] = weights(learner)
        torch.save(learned, folder / f"{name}_{rank}.pt")


@pytest.mark.timeout(240)
def test_two_ranks_agree_under_any_sharding(tmp_path, demos):
    shutil.copytree(demos, tmp_path / "demos")
    run_ranks(run_rank, find_free_port(), tmp_path)
    expected = {name: torch.load(tmp_path / f"{name}_0.pt")["no_shard"] for name in ("td3", "rlpd")}
    expected["crossq"] = train_on_shared_batches(0, 1, "no_shard")  # what one rank learns
    for name, weights_of_one in expected.items():
        for rank in (0, 1):
            for result in torch.load(tmp_path / f"{name}_{rank}.pt").values():
                assert_same(result, weights_of_one, atol=5e-4, rtol=1e-3)


def test_td3_smooths_targets_by_bounded_noise_and_leaves_the_policys_alone():
    learner = make_td3(updates=1)
    learner.losses.cfg = dataclasses.replace(learner.losses.cfg, target_noise=3.0, target_noise_clip=0.25)
    seen, forward = {}, learner.policy.forward

    def record(forward_type, **arguments):
        seen[forward_type] = arguments["noise"]
        return forward(forward_type, **arguments)

    learner.policy.forward = record
    train(learner, 1, 2)
    assert seen[ForwardType.CRITIC].abs().max() == 0.25
    assert seen[ForwardType.ACTOR].abs().max() > 1.0


def test_the_share_of_demonstrations_is_that_of_the_recipe(demos):
    demo_buffer = DemoBufferConfig(load_path=str(demos), batch_share=0.25)
    learner = make_learner(dataclasses.replace(LOSS, demo_buffer=demo_buffer))
    train(learner, 1, 1)
    batches, _ = learner._draw(torch.Generator().manual_seed(0))
    assert int((torch.cat([rows.rewards for rows, _ in batches]) == 50.0).sum()) == 8


def test_demonstrations_are_drawn_uniformly_from_what_was_saved_and_interventions(demos):
    demo_buffer = DemoBufferConfig(load_path=str(demos), batch_share=0.5, interventions=True)
    parts = Demonstrations(demo_buffer, num_ranks=1)
    new = Transitions.from_trajectory(make_trajectory(), gamma=0.9)
    parts.add(new, torch.arange(len(new)) < 5)
    assert len(parts.interventions) == 5
    saved, intervened = parts.sample(106, torch.Generator().manual_seed(0))
    assert (len(saved), len(intervened)) == (96, 10)  # 48 were saved
