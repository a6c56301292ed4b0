"""From trajectory to targets in one call."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from rlinf.algorithms.targets import compute_targets
from rlinf.algorithms.types import finalize_metrics
from rlinf.data.embodied import Trajectory


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


def test_grpo_targets_with_filter() -> None:
    config = {
        "normalize_advantages": False,
        "filter_rewards": True,
        "rewards_lower_bound": 0.0,
        "rewards_upper_bound": 10.0,
    }
    targets, metrics = compute_targets(
        make_trajectory([8, 8, 3, 3]),
        adv_type="grpo",
        adv_config=config,
        reward_type="chunk_level",
        bootstrap_type="standard",
    )
    # Group 8 scores 3 and 8; group 3 scores 12 and 16 and is left out.
    assert targets.advantages.tolist() == [[-2.5], [-2.5], [2.5], [2.5], [0.0], [0.0], [0.0], [0.0]]
    assert targets.value_mask.flatten().tolist() == [True] * 4 + [False] * 4
    assert targets.action_mask.sum().item() == 7
    assert targets.prev_values is None
    numbers = finalize_metrics(metrics)
    assert numbers["filtered_fraction"] == 0.5
    assert numbers["score"] == pytest.approx((3 + 8 + 12 + 16) / 4)


def test_action_level_targets_have_one_column_per_action() -> None:
    targets, _ = compute_targets(
        make_trajectory([0, 0, 0, 0]),
        adv_type="reinpp",
        adv_config={"gamma": 1.0, "normalize_advantages": False},
        reward_type="action_level",
        bootstrap_type="standard",
    )
    assert targets.returns[:2].tolist() == [[3.0, 2.0], [1.0, 0.0]]
    assert targets.returns[2:4].tolist() == [[8.0, 6.0], [4.0, 2.0]]
    assert torch.equal(targets.value_mask, targets.action_mask)


def test_gae_continues_truncated_episodes_and_keeps_the_values_of_the_rollout() -> None:
    trajectory = make_trajectory([0, 1, 2, 3])
    values, final_values = torch.arange(12.0).view(3, 4, 1), torch.full((2, 4, 1), 100.0)
    truncations, terminations = trajectory.truncations.clone(), trajectory.terminations.clone()
    truncations[0, 0, 1] = terminations[0, 1, 1] = True
    targets, _ = compute_targets(
        dataclasses.replace(
            trajectory,
            values=values,
            final_values=final_values,
            truncations=truncations,
            terminations=terminations,
        ),
        adv_type="gae",
        adv_config={"gamma": 0.5, "gae_lambda": 0.0, "normalize_advantages": False},
        reward_type="chunk_level",
        bootstrap_type="standard",
    )
    # Rewards of the chunks: 2, 4, 6 and 8, and 1 where the last action was not executed.
    following = [[2 + 50.0, 1 + 0.5 * 8], [4.0, 4 + 0.5 * 9], [6 + 0.5 * 6, 6 + 0.5 * 10], [8 + 0.5 * 7, 8 + 0.5 * 11]]
    assert targets.returns.view(4, 2).tolist() == following
    assert targets.prev_values is not None
    assert targets.prev_values.view(4, 2).tolist() == [[0.0, 4.0], [1.0, 5.0], [2.0, 6.0], [3.0, 7.0]]
    torch.testing.assert_close(targets.advantages, targets.returns - targets.prev_values)
