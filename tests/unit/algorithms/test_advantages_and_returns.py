"""Advantages of trajectories, in the order of samples."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from rlinf.algorithms.advantages_and_returns import AdvantagesAndReturns, compute_advantages_and_returns
from rlinf.algorithms.steps import rows_to_samples, steps_to_samples, trajectory_to_steps
from rlinf.algorithms.types import Metrics, finalize_metrics
from rlinf.config.schema.algorithm import AdvantageConfig, GAEConfig, GRPOConfig, ReinPPConfig
from rlinf.data.messages.embodied import Trajectory


def make_trajectory(group_ids: list[int]) -> Trajectory:
    """T = 2, B = 4, C = 2, no value head; trajectory b scores 4 (b + 1) but the last action of 0 is not executed."""
    executed = torch.ones(2, 4, 2, dtype=torch.bool)
    executed[1, 0, 1] = False
    nothing = torch.zeros_like(executed)
    return Trajectory(
        forward_inputs={},
        logprobs=torch.zeros(2, 4, 2, 1),
        values=None,
        rewards=torch.arange(1.0, 5.0).view(1, 4, 1).expand(2, 4, 2),
        terminations=nothing,
        truncations=nothing,
        executed=executed,
        final_values=None,
        group_ids=torch.tensor(group_ids),
        env_ids=torch.arange(4),
        versions=torch.zeros(2, 4, dtype=torch.int64),
    )


def compute(
    adv_type: str, trajectory: Trajectory, cfg: AdvantageConfig, reward_type: str = "chunk_level"
) -> tuple[AdvantagesAndReturns, Metrics]:
    """Return advantages, returns and the mask as samples [N, K]."""
    steps = trajectory_to_steps(trajectory, reward_type=reward_type, bootstrap_type="standard")
    computed, metrics = compute_advantages_and_returns(adv_type, steps, cfg)
    columns = (computed.advantages, computed.returns, computed.loss_mask)
    return AdvantagesAndReturns(*(steps_to_samples(column, trajectory.num_steps) for column in columns)), metrics


def test_grpo_with_filter() -> None:
    config = GRPOConfig(
        normalize_advantages=False, filter_rewards=True, rewards_lower_bound=0.0, rewards_upper_bound=10.0
    )
    computed, metrics = compute("grpo", make_trajectory([8, 8, 3, 3]), config)
    # Group 8 scores 3 and 8; group 3 scores 12 and 16 and is left out.
    assert computed.advantages.tolist() == [[-2.5], [-2.5], [2.5], [2.5], [0.0], [0.0], [0.0], [0.0]]
    assert computed.loss_mask.flatten().tolist() == [True] * 4 + [False] * 4
    numbers = finalize_metrics(metrics)
    assert numbers["filtered_fraction"] == 0.5
    assert numbers["score"] == pytest.approx((3 + 8 + 12 + 16) / 4)


def test_action_level_rewards_have_one_column_per_action() -> None:
    trajectory = make_trajectory([0, 0, 0, 0])
    config = ReinPPConfig(gamma=1.0, normalize_advantages=False)
    computed, _ = compute("reinpp", trajectory, config, reward_type="action_level")
    assert computed.returns[:2].tolist() == [[3.0, 2.0], [1.0, 0.0]]
    assert computed.returns[2:4].tolist() == [[8.0, 6.0], [4.0, 2.0]]
    assert torch.equal(computed.loss_mask, rows_to_samples(trajectory.executed))


def test_only_selected_trajectories_are_learned_from() -> None:
    steps = trajectory_to_steps(make_trajectory([0, 0, 1, 1]), reward_type="chunk_level", bootstrap_type="standard")
    selected = torch.tensor([True, True, False, False])
    config = GRPOConfig(normalize_advantages=False)
    computed, metrics = compute_advantages_and_returns("grpo", steps, config, selected=selected)
    assert computed.advantages.tolist() == [[-2.5, 2.5, 0.0, 0.0]] * 2
    assert computed.loss_mask.tolist() == [[True, True, False, False]] * 2
    assert finalize_metrics(metrics)["filtered_fraction"] == 0.5


def test_gae_continues_truncated_episodes() -> None:
    trajectory = make_trajectory([0, 1, 2, 3])
    values, final_values = torch.arange(12.0).view(3, 4, 1), torch.full((2, 4, 1), 100.0)
    truncations, terminations = trajectory.truncations.clone(), trajectory.terminations.clone()
    truncations[0, 0, 1] = terminations[0, 1, 1] = True
    trajectory = dataclasses.replace(
        trajectory, values=values, final_values=final_values, truncations=truncations, terminations=terminations
    )
    computed, _ = compute("gae", trajectory, GAEConfig(gamma=0.5, gae_lambda=0.0, normalize_advantages=False))
    # Rewards of the chunks: 2, 4, 6 and 8, and 1 where the last action was not executed.
    following = [[2 + 50.0, 1 + 0.5 * 8], [4.0, 4 + 0.5 * 9], [6 + 0.5 * 6, 6 + 0.5 * 10], [8 + 0.5 * 7, 8 + 0.5 * 11]]
    assert computed.returns.view(4, 2).tolist() == following
    prev_values = torch.tensor([[0.0, 4.0], [1.0, 5.0], [2.0, 6.0], [3.0, 7.0]])
    torch.testing.assert_close(computed.advantages.view(4, 2), computed.returns.view(4, 2) - prev_values)
