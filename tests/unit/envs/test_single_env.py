"""The chunk loop of single environments, and how their specification is shared out over processes."""

from typing import Any

import numpy as np
import pytest
import toy_envs

from rlinf.envs.raw_chunk import ChunkRequest, EpisodeRule
from rlinf.envs.single_env import SingleEnvRows, SingleEnvSpec
from rlinf.errors import EnvironmentFailure


def make_spec(num_envs: int = 3, **fields: Any) -> SingleEnvSpec:
    return SingleEnvSpec(env_type="toy", factory=toy_envs.make_counting_env, num_envs=num_envs, **fields)


def make_request(num_envs: int, num_chunks: int, **fields: Any) -> ChunkRequest:
    defaults: dict[str, Any] = {
        "active": np.ones(num_envs, np.bool_),
        "steps": np.zeros(num_envs, np.int64),
        "next_seeds": None,
        "rule": EpisodeRule(max_episode_steps=99, ignore_terminations=False),
    }
    return ChunkRequest(actions=np.zeros((num_envs, num_chunks, 1), np.float32), **(defaults | fields))


def test_a_process_gets_its_share_of_the_specification() -> None:
    own = [{"row": number} for number in range(6)]
    spec = make_spec(6, first_env=10, num_recorded=3, row_kwargs=own)
    shares = [spec.rows(0, 2), spec.rows(2, 4), spec.rows(4, 6)]
    assert [share.num_recorded for share in shares] == [2, 1, 0]
    assert [share.first_env for share in shares] == [10, 12, 14]
    assert [share.row_kwargs for share in shares] == [own[:2], own[2:4], own[4:]]
    assert [share.num_envs for share in shares] == [2, 2, 2]


def test_the_next_episodes_start_from_the_seeds_of_their_rows() -> None:
    rows = SingleEnvRows(make_spec())
    rows.reset(np.arange(3), np.array([2, 0, 1]))  # they end after 5, 3 and 4 steps
    chunk = rows.run_chunk(make_request(3, 4, next_seeds=np.array([20, 21, 22])))
    assert chunk.final_ids.tolist() == [1, 2]
    assert chunk.obs["states"].tolist() == [[2, 4], [21, 0], [22, 0]]
    assert chunk.final_obs is not None
    assert chunk.final_obs["states"].tolist() == [[0, 3], [1, 4]]


def test_steps_count_on_from_chunk_to_chunk() -> None:
    rows = SingleEnvRows(make_spec(1))
    rows.reset(np.array([0]), np.array([4]))
    rule = EpisodeRule(max_episode_steps=6, ignore_terminations=False)
    chunk = rows.run_chunk(make_request(1, 3, steps=np.array([4]), rule=rule))
    assert chunk.truncations.tolist() == [[False, True, False]]


def test_a_report_of_success_is_not_forgotten_by_steps_that_are_silent() -> None:
    class Silent(toy_envs.CountingEnv):
        def step(self, action: Any) -> Any:
            *result, info = super().step(action)
            return *result, info if self.time == 2 else {}

    def make_silent(*, render: bool) -> Any:
        return toy_envs.GymnasiumSingleEnv(Silent())

    rows = SingleEnvRows(SingleEnvSpec(env_type="toy", factory=make_silent))
    rows.reset(np.array([0]), np.array([0]))
    chunk = rows.run_chunk(make_request(1, 3))
    assert chunk.reports_success
    assert chunk.successes.tolist() == [[False, True, False]]


def test_a_failure_names_the_environment_among_all() -> None:
    spec = make_spec(4, first_env=10, kwargs={"fail_at": 2}).rows(2, 4)
    rows = SingleEnvRows(spec)
    rows.reset(np.arange(2), np.arange(2))
    with pytest.raises(EnvironmentFailure, match=r"Environment 13 .*at step 2 of its episode"):
        rows.run_chunk(make_request(2, 3, active=np.array([False, True])))
