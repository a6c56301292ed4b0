"""Demonstrations and interventions fill half of each batch."""

import dataclasses
from pathlib import Path

import pytest
import torch
from off_policy_kinds import make_rlpd
from off_policy_toys import LOSS, assert_same, make_learner, make_trajectory, train, weights

from rlinf.config.schema.algorithm import DemoBufferConfig
from rlinf.data.messages.embodied import Trajectory
from rlinf.data.replay.buffer import ReplayBuffer, Transitions
from rlinf.errors import DatasetError
from rlinf.workers.actor.demonstrations import Demonstrations


def test_rlpd_draws_half_of_each_batch_from_demonstrations(demos: Path) -> None:
    learner = make_rlpd(demos)
    train(learner, 1, 1)
    batches, share = learner._draw(torch.Generator().manual_seed(0))
    rewards = torch.cat([rows.rewards for rows, _ in batches])
    assert len(rewards) == share == 32
    assert int((rewards == 50.0).sum()) == 16
    assert len(learner.replay) == len(learner.demos)  # nothing was added to the demonstrations


def intervene(trajectory: Trajectory) -> Trajectory:
    intervened = torch.zeros_like(trajectory.executed)
    intervened[1, 2:5, 0] = True
    trajectory.rewards[1, 2:5] = 50.0
    return dataclasses.replace(trajectory, intervened=intervened)


@pytest.mark.parametrize("also_saved", [False, True])
def test_interventions_are_demonstrations_too(demos: Path, tmp_path: Path, also_saved: bool) -> None:
    demo_buffer = DemoBufferConfig(load_path=str(demos) if also_saved else None, interventions=True)
    loss = dataclasses.replace(LOSS, gamma=0.0, demo_buffer=demo_buffer)
    learner = make_learner(loss)
    learner.compute_advantages(make_trajectory())
    learner.update(1)
    num_saved = len(learner.demos)
    assert num_saved == (len(learner.replay) if also_saved else 0)

    def rewards_drawn() -> torch.Tensor:
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


def test_demonstrations_of_another_environment_are_an_error(tmp_path: Path) -> None:
    replay = ReplayBuffer(10)
    other = Transitions.from_trajectory(make_trajectory(), gamma=0.99)
    replay.add(dataclasses.replace(other, inputs={"states": other.inputs["states"][:, :4]}))
    replay.save(tmp_path / "demos")
    with pytest.raises(DatasetError, match=r"demo_buffer\.load_path has for inputs\.states .*\[4\]"):
        make_rlpd(tmp_path / "demos").compute_advantages(make_trajectory())


def test_rlpd_forms_targets_of_some_critics_that_all_ranks_agree_on(demos: Path) -> None:
    drawn = [make_rlpd(demos, updates=20)._sample_members(step) for step in (1, 1, 2)]
    as_lists = [[chosen.tolist() for chosen in members] for members in drawn]
    assert as_lists[0] == as_lists[1] != as_lists[2]
    assert all(len(set(chosen)) == 2 for chosen in as_lists[0])
    assert {head for chosen in as_lists[0] for head in chosen} == set(range(5))


def test_the_share_of_demonstrations_is_that_of_the_recipe(demos: Path) -> None:
    demo_buffer = DemoBufferConfig(load_path=str(demos), batch_share=0.25)
    learner = make_learner(dataclasses.replace(LOSS, demo_buffer=demo_buffer))
    train(learner, 1, 1)
    batches, _ = learner._draw(torch.Generator().manual_seed(0))
    assert int((torch.cat([rows.rewards for rows, _ in batches]) == 50.0).sum()) == 8


def test_demonstrations_are_drawn_uniformly_from_what_was_saved_and_interventions(demos: Path) -> None:
    demo_buffer = DemoBufferConfig(load_path=str(demos), batch_share=0.5, interventions=True)
    parts = Demonstrations(demo_buffer, num_ranks=1)
    new = Transitions.from_trajectory(make_trajectory(), gamma=0.9)
    parts.add(new, torch.arange(len(new)) < 5)
    assert len(parts.interventions) == 5
    saved, intervened = parts.sample(106, torch.Generator().manual_seed(0))
    assert (len(saved), len(intervened)) == (96, 10)  # 48 were saved
