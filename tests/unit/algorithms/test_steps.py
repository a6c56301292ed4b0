"""Trajectories of chunks as steps in time and as samples."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from rlinf.algorithms.steps import rows_to_samples, samples_to_steps, steps_to_samples, trajectory_to_steps
from rlinf.data.messages.embodied import Trajectory
from rlinf.errors import AlgorithmError


def make_trajectory(num_values: int = 1) -> Trajectory:
    """T = 2, B = 2, C = 2. Environment 0 is truncated after the first action; 1 terminates at the end of row 0 and
    rests in row 1."""
    executed = torch.tensor([[[1, 0], [1, 1]], [[1, 1], [0, 0]]]).bool()
    truncations = torch.zeros_like(executed)
    truncations[0, 0, 0] = True
    terminations = torch.zeros_like(executed)
    terminations[0, 1, 1] = True
    return Trajectory(
        forward_inputs={},
        logprobs=torch.zeros(2, 2, 2, 1),
        values=torch.arange(3.0 * 2 * num_values).view(3, 2, num_values),
        rewards=torch.tensor([[[1.0, 99.0], [2.0, 3.0]], [[4.0, 5.0], [99.0, 99.0]]]),
        terminations=terminations,
        truncations=truncations,
        executed=executed,
        final_values=torch.full((2, 2, num_values), 10.0),
        group_ids=torch.tensor([7, 7]),
        env_ids=torch.tensor([0, 1]),
        versions=torch.zeros(2, 2, dtype=torch.int64),
    )


def test_chunk_level_sums_executed_rewards_and_bootstraps_truncations_only() -> None:
    steps = trajectory_to_steps(make_trajectory(), reward_type="chunk_level", bootstrap_type="standard")
    assert steps.rewards.tolist() == [[1.0, 5.0], [9.0, 0.0]]
    assert steps.dones.tolist() == [[True, True], [False, False]]
    assert steps.loss_mask.tolist() == [[True, True], [True, False]]
    assert steps.bootstrap_values is not None
    assert steps.values is not None
    assert steps.bootstrap_values.tolist() == [[10.0, 0.0], [0.0, 0.0]]
    assert steps.values.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]


def test_always_bootstraps_terminations_too() -> None:
    steps = trajectory_to_steps(make_trajectory(), reward_type="chunk_level", bootstrap_type="always")
    assert steps.bootstrap_values is not None
    assert steps.bootstrap_values.tolist() == [[10.0, 10.0], [0.0, 0.0]]


def test_action_level_orders_actions_in_time() -> None:
    steps = trajectory_to_steps(make_trajectory(num_values=2), reward_type="action_level", bootstrap_type="standard")
    assert steps.rewards.tolist() == [[1.0, 2.0], [0.0, 3.0], [4.0, 0.0], [5.0, 0.0]]
    assert steps.dones.tolist() == [[True, False], [False, True], [False, False], [False, False]]
    assert steps.loss_mask.tolist() == [[True, True], [False, True], [True, False], [True, False]]
    assert steps.values is not None
    assert steps.bootstrap_values is not None
    assert steps.values.tolist() == [[0.0, 2.0], [1.0, 3.0], [4.0, 6.0], [5.0, 7.0], [8.0, 10.0]]
    assert steps.bootstrap_values.tolist() == [[10.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("reward_type", ["chunk_level", "action_level"])
@pytest.mark.parametrize("name", ["terminations", "truncations"])
def test_what_was_not_executed_ends_nothing(reward_type: str, name: str) -> None:
    trajectory = make_trajectory(2 if reward_type == "action_level" else 1)
    expected = trajectory_to_steps(trajectory, reward_type=reward_type, bootstrap_type="always")
    rest = dataclasses.replace(trajectory, **{name: getattr(trajectory, name) | ~trajectory.executed})
    steps = trajectory_to_steps(rest, reward_type=reward_type, bootstrap_type="always")
    assert torch.equal(steps.dones, expected.dones)
    assert torch.equal(steps.bootstrap_values, expected.bootstrap_values)  # type: ignore[arg-type]


@pytest.mark.parametrize("reward_type", ["chunk_level", "action_level"])
def test_an_episode_that_is_truncated_and_terminated_at_once_has_terminated(reward_type: str) -> None:
    trajectory = make_trajectory(2 if reward_type == "action_level" else 1)
    both = dataclasses.replace(trajectory, truncations=trajectory.truncations | trajectory.terminations)
    steps = trajectory_to_steps(both, reward_type=reward_type, bootstrap_type="standard")
    assert steps.bootstrap_values is not None
    # Only environment 0 goes on, after its first action.
    assert steps.bootstrap_values.nonzero().tolist() == [[0, 0]]
    assert steps.dones.sum() == 2


def test_what_follows_a_chunk_is_the_state_of_its_first_final_value() -> None:
    trajectory = make_trajectory(num_values=2)
    final_values = torch.tensor([[[10.0, -1.0], [20.0, -2.0]], [[30.0, -3.0], [40.0, -4.0]]])
    steps = trajectory_to_steps(
        dataclasses.replace(trajectory, final_values=final_values),
        reward_type="action_level",
        bootstrap_type="always",
    )
    assert steps.bootstrap_values is not None
    assert steps.bootstrap_values.tolist() == [[10.0, 0.0], [0.0, 20.0], [0.0, 0.0], [0.0, 0.0]]


def test_values_must_fit_the_reward_type() -> None:
    with pytest.raises(AlgorithmError, match=r"action_level needs values .* \[3, 2, 2\], received \[3, 2, 1\]"):
        trajectory_to_steps(make_trajectory(), reward_type="action_level", bootstrap_type="standard")
    with pytest.raises(AlgorithmError, match="token_level"):
        trajectory_to_steps(make_trajectory(), reward_type="token_level", bootstrap_type="standard")


def test_samples_run_trajectory_by_trajectory() -> None:
    rows = torch.arange(6).view(3, 2)  # [T, B]; row (t, b) is 2 t + b
    assert rows_to_samples(rows).tolist() == [0, 2, 4, 1, 3, 5]
    steps = torch.arange(12).view(6, 2)  # [T * C, B] with C = 2
    assert steps_to_samples(steps, 3).tolist() == [[0, 2], [4, 6], [8, 10], [1, 3], [5, 7], [9, 11]]
    assert steps_to_samples(rows, 3).tolist() == [[0], [2], [4], [1], [3], [5]]


@pytest.mark.parametrize("per_sample", [1, 3])
def test_samples_go_back_into_time(per_sample: int) -> None:
    steps = torch.randn(4 * per_sample, 5)
    assert torch.equal(samples_to_steps(steps_to_samples(steps, 4), 4), steps)
    with pytest.raises(AlgorithmError, match="5 samples do not divide into 4 chunk steps"):
        samples_to_steps(torch.zeros(5, per_sample), 4)
