"""Episodes begin in single rows of a ManiSkill batch, each from its own seed, and the others go on undisturbed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from maniskill_fake import FakeManiSkill

from rlinf.envs.simulators.maniskill.maniskill_looks import look_late
from rlinf.envs.simulators.maniskill.maniskill_rows import RowResets

ROWS = np.arange(3)
SEEDS = np.array([4, 9, 6])


def _make(**keys: Any) -> tuple[FakeManiSkill, RowResets]:
    env = FakeManiSkill(3, **keys)
    return env, RowResets(env)


def _states(env: FakeManiSkill, row: int) -> list[float]:
    values = (env.qpos[row], env.goal[row], env.weight[row : row + 1], env.legacy[row : row + 1])
    return [float(number) for value in values for number in value]


def test_the_stand_in_needs_it() -> None:
    env = FakeManiSkill(3)
    env.reset(seed=[4, 9, 6], options={"env_idx": torch.arange(3)})
    together = _states(env, 1)
    env.reset(seed=[5, 9, 6], options={"env_idx": torch.tensor([1])})
    assert _states(env, 1) != together, "ManiSkill seeds what most tasks sample of by row 0"


def test_a_row_starts_from_its_seed_whatever_the_others_are() -> None:
    env, resets = _make()
    resets.reset(ROWS, SEEDS)
    together = [_states(env, row) for row in ROWS]
    for row, seed in ((0, 9), (2, 9), (1, 4)):
        resets.reset(np.array([row]), np.array([seed]))
        assert _states(env, row) == together[SEEDS.tolist().index(seed)]
    assert env._episode_seed.tolist() == [9, 4, 9]


def test_the_first_row_starts_as_in_maniskill_itself() -> None:
    plain = FakeManiSkill(1)
    plain.reset(seed=[9])
    env, resets = _make()
    resets.reset(np.array([1]), np.array([9]))
    assert _states(env, 1) == _states(plain, 0)


@pytest.mark.parametrize("two_robots", [False, True])
def test_other_rows_go_on_as_if_there_had_been_no_reset(two_robots: bool) -> None:
    outcomes = []
    for disturbs in (False, True):
        env, resets = _make(two_robots=two_robots)
        resets.reset(ROWS, SEEDS)
        actions = np.random.default_rng(0).uniform(-1, 1, (4, 3, 2)).astype(np.float32)
        env.step(actions[0])
        env.step(actions[1])
        if disturbs:
            resets.reset(np.array([1]), np.array([77]))
        env.step(actions[2])
        env.step(actions[3])
        outcomes.append([_states(env, row) for row in (0, 2)])
    assert outcomes[0] == outcomes[1]


def test_a_row_that_starts_forgets_its_targets() -> None:
    env, resets = _make()
    resets.reset(ROWS, SEEDS)
    env.step(np.ones((3, 2), np.float32))
    resets.reset(np.array([1]), np.array([9]))
    assert torch.equal(env.arm._target_qpos[1], env.qpos[1])
    assert torch.equal(env.arm._target_pose.raw_pose[1], env.qpos[1])


def test_random_numbers_of_others_are_left_alone() -> None:
    _, resets = _make()
    before = torch.random.get_rng_state()
    resets.reset(ROWS, SEEDS)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_task_that_reads_seeds_alone_starts_all_rows_at_once() -> None:
    env, resets = _make()
    before = env.num_initializations
    resets.reset(ROWS, SEEDS)
    assert env.num_initializations == before + 3
    env.starts_follow_from_seeds = True  # type: ignore[attr-defined]
    resets.reset(ROWS, SEEDS)
    assert env.num_initializations == before + 4


def test_a_scene_without_robot_is_reset() -> None:
    env, resets = _make()
    env.agent = None  # type: ignore[assignment]
    resets.reset(np.array([2]), np.array([9]))
    assert env._episode_seed.tolist() == [0, 0, 9]


def test_rows_that_begin_do_not_touch_what_they_touched_before() -> None:
    env = FakeManiSkill(3)
    look_late(env)
    resets = RowResets(env)
    env.scene.impulses = torch.ones(3, 3)
    assert resets.reset(np.array([1]), np.array([5]))["info"]["touches"].tolist() == [True, False, True]
