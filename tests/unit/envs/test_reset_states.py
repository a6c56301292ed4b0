"""Which states episodes start from: over groups, epochs and episodes, however environments are cut."""

from typing import Any

import numpy as np
import pytest
import torch
from batch_env import BatchEnv, make_config, make_single
from rule_envs import ordered, zeros

from rlinf.envs.base import VectorEnv
from rlinf.envs.reset_states import ResetStates


@pytest.fixture(params=[BatchEnv, make_single], ids=["batch", "single"])
def make_env(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_start_states_do_not_depend_on_how_environments_are_cut(make_env: Any) -> None:
    cfg = make_config(total_num_envs=6, group_size=2)

    def starts(cuts: list[tuple[int, int]]) -> tuple[list[Any], list[int]]:
        rows, groups = [], []
        for first, count in cuts:
            with make_env(cfg, num_envs=count, first_env=first) as env:
                rows += env.reset(4)["states"].tolist()
                groups += env.group_ids.tolist()
                rows += env.chunk_step(zeros(count, 8)).obs["states"].tolist()
        return sorted(rows), groups

    whole, groups = starts([(0, 6)])
    assert starts([(0, 3), (3, 3)]) == (whole, groups)
    assert starts([(0, 1), (1, 5)]) == (whole, groups)
    assert groups == [12, 12, 13, 13, 14, 14]


def test_members_of_a_group_share_the_start_of_their_kth_episode(make_env: Any) -> None:
    with make_env(make_config(group_size=2), num_envs=4) as env:
        for epoch in (0, 1):
            obs = env.reset(epoch)["states"]
            for _ in range(3):
                assert torch.equal(obs[0], obs[1])
                assert torch.equal(obs[2], obs[3])
                assert not torch.equal(obs[0], obs[2])
                obs = env.chunk_step(zeros(4, 8)).obs["states"]


def test_random_ids_change_with_epoch_and_episode_and_fixed_ids_do_not(make_env: Any) -> None:
    def ids(epoch: int, **kwargs: Any) -> list[list[int]]:
        with make_env(make_config(**kwargs), num_envs=4) as env:
            env.reset(epoch)
            first = env.reset_state_ids.tolist()
            env.chunk_step(zeros(4, 8))
            return [first, env.reset_state_ids.tolist()]

    random = ids(0) + ids(1)
    assert len({tuple(row) for row in random}) == 4
    assert ids(1) == random[2:]
    assert ids(0, seed=1) != random[:2]
    assert ids(0, use_fixed_reset_state_ids=True) == ids(5, use_fixed_reset_state_ids=True)


def test_ordered_ids_cover_each_state_once(make_env: Any) -> None:
    cfg = ordered(total_num_envs=4, group_size=2, ignore_terminations=True)
    seen = []
    with make_env(cfg, num_envs=4) as env:
        for epoch in range(3):
            env.reset(epoch)
            for _ in range(2):
                seen += env.reset_state_ids.tolist()[::2]
                env.chunk_step(zeros(4, 6))
    assert seen == list(range(12))


def test_ordered_ids_do_not_depend_on_how_many_episodes_fit_into_an_epoch() -> None:
    def ids(**kwargs: Any) -> list[list[int]]:
        states = ResetStates(ordered(total_num_envs=3, rollout_epoch=5, **kwargs), num_envs=3, first_env=0)
        return [states.ids(epoch, np.full(3, number)).tolist() for number in range(2) for epoch in range(5)]

    seen = ids()
    assert sum(seen, []) == list(range(30))
    assert ids(max_steps_per_rollout_epoch=600) == ids(max_episode_steps=12) == ids(auto_reset=False) == seen


def test_ordered_ids_go_on_in_the_next_train_step() -> None:
    states = ResetStates(ordered(total_num_envs=3, rollout_epoch=2), num_envs=3, first_env=0)
    seen = [states.ids(epoch, np.full(3, number)) for epoch in range(4) for number in range(2)]
    assert sorted(np.concatenate(seen).tolist()) == list(range(24))


def test_an_epoch_does_not_depend_on_those_before(make_env: Any) -> None:
    def epoch_one(env: VectorEnv) -> list[Any]:
        env.reset(1)
        return [env.chunk_step(zeros(4, 4)).obs["states"].tolist() for _ in range(3)]

    with make_env(make_config(), num_envs=4) as undisturbed:
        undisturbed.reset(0)
        undisturbed.chunk_step(zeros(4, 4))
        expected = epoch_one(undisturbed)
    with make_env(make_config(), num_envs=4) as resumed:
        assert epoch_one(resumed) == expected
