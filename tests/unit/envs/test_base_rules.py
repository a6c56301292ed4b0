"""The rules of VectorEnv, by hand-computed numbers, on a batch simulator and on single environments."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from batch_env import BatchEnv, make_config, make_single
from rule_envs import ordered, zeros

from rlinf.envs.base import StepResult
from rlinf.errors import ConfigError, EnvironmentFailure, NumericalError


@pytest.fixture(params=[BatchEnv, make_single], ids=["batch", "single"])
def make_env(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_a_done_in_mid_chunk_stops_the_chunk(make_env: Any) -> None:
    with make_env(ordered(total_num_envs=2), num_envs=2) as env:
        env.reset(0)
        step = env.chunk_step(zeros(2, 5))
    # Row 0 ends at step 3, row 1 at step 4.
    assert step.executed.tolist() == [[True, True, True, False, False], [True, True, True, True, False]]
    assert step.rewards.tolist() == [[1, 2, 3, 0, 0], [1, 2, 3, 4, 0]]
    assert step.terminations.tolist() == [[False, False, True, False, False], [False, False, False, True, False]]
    assert not step.truncations.any()
    assert step.final_ids.tolist() == [0, 1]
    assert step.final_obs["states"].tolist() == [[0, 3], [1, 4]]
    # Two groups, two episodes fit into an epoch: the second episodes start from ids 2 and 3.
    assert step.obs["states"].tolist() == [[2, 0], [3, 0]]
    assert step.episodes[1] == {
        "success_once": 1.0,
        "success_at_end": 0.0,
        "return": 10.0,
        "reward": 2.5,
        "episode_len": 4.0,
    }


def test_without_auto_reset_an_environment_rests_until_reset(make_env: Any) -> None:
    with make_env(ordered(total_num_envs=2, auto_reset=False), num_envs=2) as env:
        env.reset(0)
        first = env.chunk_step(zeros(2, 3))
        second = env.chunk_step(zeros(2, 3))
        third = env.chunk_step(zeros(2, 3))
        restarted = env.reset(1)
        fourth = env.chunk_step(zeros(2, 1))
    assert first.obs["states"].tolist() == [[0, 3], [1, 3]]
    assert first.final_ids.tolist() == [0]
    assert second.executed.tolist() == [[False] * 3, [True, False, False]]
    assert second.rewards.tolist() == [[0, 0, 0], [4, 0, 0]]
    assert second.obs["states"].tolist() == [[0, 3], [1, 4]]
    assert second.final_ids.tolist() == [1]
    assert not third.executed.any()
    assert third.final_ids is None
    assert third.final_obs is None
    assert third.episodes == ()
    assert restarted["states"][:, 1].tolist() == [0, 0]
    assert fourth.executed.all()


def test_ignored_terminations_leave_the_episode_to_truncation(make_env: Any) -> None:
    with make_env(ordered(total_num_envs=2, ignore_terminations=True), num_envs=2) as env:
        env.reset(0)
        step = env.chunk_step(zeros(2, 8))
    assert not step.terminations.any()
    assert step.truncations.nonzero().tolist() == [[0, 5], [1, 5]]
    assert step.executed.sum(dim=1).tolist() == [6, 6]
    assert [metrics["success_once"] for metrics in step.episodes] == [1.0, 1.0]


def test_an_action_that_terminates_and_truncates_counts_as_termination(make_env: Any) -> None:
    with make_env(ordered(total_num_envs=2, max_episode_steps=4), num_envs=2) as env:
        env.reset(0)
        step = env.chunk_step(zeros(2, 4))
    assert step.terminations[1].tolist() == [False, False, False, True]
    assert not step.truncations.any()


def test_success_at_end_is_the_last_steps(make_env: Any) -> None:
    with make_env(ordered(total_num_envs=1, max_episode_steps=2), num_envs=1) as env:
        env.reset(0)
        step = env.chunk_step(zeros(1, 2))
    assert step.truncations[0].tolist() == [False, True]
    assert step.episodes[0]["success_at_end"] == 1.0


def test_relative_reward_is_the_change_since_the_step_before_over_chunks_and_episodes(make_env: Any) -> None:
    with make_env(ordered(total_num_envs=1, use_rel_reward=True, reward_coef=2.0), num_envs=1) as env:
        env.reset(0)
        actions = torch.tensor([[[5.0], [1.0]]])
        first = env.chunk_step(actions)  # rewards 6, 3
        second = env.chunk_step(zeros(1, 2))  # reward 3, done
        third = env.chunk_step(zeros(1, 1))  # reward 1 of a new episode
    assert first.rewards.tolist() == [[12, -6]]
    assert second.rewards.tolist() == [[0, 0]]
    assert second.episodes[0]["return"] == 12.0  # The task's own: 6 + 3 + 3.
    assert third.rewards.tolist() == [[2]]


def test_strings_of_an_observation_follow_their_rows() -> None:
    with BatchEnv(ordered(total_num_envs=2), num_envs=2) as env:
        env.reset(0)
        step = env.chunk_step(zeros(2, 3))
    assert step.final_obs["task_descriptions"] == ["count from 0"]
    assert step.obs["task_descriptions"] == ["count from 2", "count from 1"]


@pytest.mark.parametrize(
    ("actions", "error", "words"),
    [
        (torch.zeros(2, 3, 2), EnvironmentFailure, r"\[2, 3, 2\].*\[2, C, 1\]"),
        (torch.full((2, 1, 1), float("nan")), NumericalError, r"row \[0, 1\]"),
    ],
)
def test_wrong_actions_are_refused(make_env: Any, actions: torch.Tensor, error: type[Exception], words: str) -> None:
    with make_env(make_config(), num_envs=2) as env:
        env.reset(0)
        with pytest.raises(error, match=words):
            env.chunk_step(actions)


def test_actions_are_clipped_to_the_box(make_env: Any) -> None:
    with make_env(make_config(), num_envs=1) as env:
        env.reset(0)
        assert env.chunk_step(torch.full((1, 1, 1), 99.0)).rewards.tolist() == [[11.0]]


def test_calls_out_of_order_say_what_is_missing(make_env: Any) -> None:
    env = make_env(make_config(), num_envs=1)
    with pytest.raises(EnvironmentFailure, match="before reset"):
        env.chunk_step(zeros(1, 1))
    env.close()
    env.close()
    with pytest.raises(EnvironmentFailure, match="closed"):
        env.reset(0)


def test_constructor_refuses_what_it_cannot_do(make_env: Any) -> None:
    with pytest.raises(ConfigError, match="total_num_envs=4"):
        make_env(make_config(), num_envs=3, first_env=2)


def test_offload_is_undone_by_reset() -> None:
    calls = []

    class DeviceEnv(BatchEnv):
        def _offload(self) -> None:
            calls.append("off")

        def _onload(self) -> None:
            calls.append("on")

    with DeviceEnv(make_config(enable_offload=True), num_envs=1) as env:
        env.offload()
        env.offload()
        env.reset(0)
        env.onload()
    assert calls == ["off", "on"]


class SucceedsTooLate(BatchEnv):
    """Says that it has succeeded when its episodes have long ended."""

    def step(self, actions: Any, active: Any) -> StepResult:
        return replace(super().step(actions, active), infos={"success": self.time > 3 + self.seeds % 5})


def test_what_an_environment_at_rest_says_of_success_does_not_count() -> None:
    with SucceedsTooLate(ordered(auto_reset=False), num_envs=4) as env:
        env.reset(0)
        episodes = [episode for _ in range(2) for episode in env.chunk_step(zeros(4, 12)).episodes]
    assert [episode["success_once"] for episode in episodes] == [0.0] * 4


def test_an_error_of_a_batch_simulator_names_it_and_its_step() -> None:
    class FailingEnv(BatchEnv):
        def step(self, actions: Any, active: Any) -> Any:
            if self.time.max() == 4:
                raise ValueError("the joint exploded")
            return super().step(actions, active)

    with FailingEnv(make_config(ignore_terminations=True), num_envs=2, first_env=2) as env:
        env.reset(0)
        with pytest.raises(
            EnvironmentFailure, match=r"environments 2-3 \(env_type=toy\) raised ValueError at step 5"
        ) as info:
            env.chunk_step(zeros(2, 6))
    assert isinstance(info.value.__cause__, ValueError)


def test_tensors_from_the_simulator_stay_tensors() -> None:
    class TensorEnv(BatchEnv):
        def observe(self) -> dict[str, Any]:
            return {"states": torch.from_numpy(super().observe()["states"])}

        def step(self, actions: Any, active: Any) -> Any:
            result = super().step(actions, active)
            return type(result)(
                obs=result.obs,
                rewards=torch.as_tensor(np.asarray(result.rewards)),
                terminations=torch.as_tensor(result.terminations),
                truncations=torch.as_tensor(result.truncations),
                infos={"success": torch.as_tensor(result.infos["success"])},
            )

    with TensorEnv(ordered(total_num_envs=2), num_envs=2) as env:
        env.reset(0)
        step = env.chunk_step(zeros(2, 5))
    assert step.obs["states"].tolist() == [[2, 0], [3, 0]]
    assert step.final_obs["states"].tolist() == [[0, 3], [1, 4]]
