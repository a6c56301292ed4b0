"""Actions that lead to the present state are logged in segments, and compared bit for bit."""

from typing import Any

import numpy as np
import torch
from batch_env import BatchEnv, make_config
from saved_episodes import play

from rlinf.envs.action_log import ActionLog
from rlinf.envs.base import StepResult
from rlinf.envs.raw_chunk import changed_rows


def test_segments_bring_all_rows_to_their_present_state_at_the_same_time() -> None:
    log = ActionLog(4)
    log.begin(np.arange(4), np.array([10, 11, 12, 13]))
    executed = [np.array([[1, 1], [1, 0], [1, 1], [0, 0]], bool), np.array([[1, 1], [0, 0], [1, 0], [0, 0]], bool)]
    for number, done in enumerate(executed):
        log.add(np.arange(8).reshape(4, 2, 1) + 100 * number, done)
    log.begin(np.array([1]), np.array([99]))
    assert log.lengths.tolist() == [4, 0, 3, 0]
    assert log.seeds.tolist() == [10, 99, 12, 13]
    state = log.state_dict()
    again = ActionLog(4)
    again.load_state_dict(state)
    log.begin(np.arange(4), np.zeros(4, np.int64))  # what was saved does not change any more
    assert again.lengths.tolist() == [4, 0, 3, 0]
    played: dict[int, list[int]] = {row: [] for row in range(4)}
    begun = []
    for segment in again.segments():
        begun.append(segment.begins.tolist())
        for row in np.flatnonzero(segment.active):
            assert segment.steps[row] == len(played[row])
            played[row] += segment.actions[row, :, 0].tolist()
    assert begun == [[0], [2], [1, 3]]
    assert played == {0: [0, 1, 100, 101], 1: [], 2: [4, 5, 104], 3: []}


def test_actions_that_are_no_arrays_are_not_saved() -> None:
    class TakesTensors(BatchEnv):
        def prepare_actions(self, actions: torch.Tensor) -> Any:
            return actions

        def step(self, actions: Any, active: Any) -> StepResult:
            return super().step(actions.numpy(), active)

    with TakesTensors(make_config(), num_envs=4) as env:
        env.reset(0)
        play(env, range(1))
        assert env.state_dict() is None


def test_rows_are_compared_bit_for_bit() -> None:
    first = {"states": np.array([[0.0, np.nan], [1.0, 2.0], [3.0, 4.0]]), "task_descriptions": ["a", "b", "c"]}
    second = {"states": np.array([[-0.0, np.nan], [1.0, 2.0], [3.0, 4.0]]), "task_descriptions": ["a", "b", "d"]}
    assert changed_rows(first, first).tolist() == []
    assert changed_rows(first, second).tolist() == [0, 2]
    assert changed_rows(first, {"states": first["states"]}).tolist() == [0, 1, 2]
    assert changed_rows(first, {**first, "states": first["states"].astype(np.float32)}).tolist() == [0, 1, 2]
