"""REINFORCE++: returns along time, group baseline, one global normalisation."""

from __future__ import annotations

import pytest
import torch

from rlinf.algorithms.registry import calculate_adv_and_returns

NO_DONES = torch.zeros(3, 2, dtype=torch.bool)
ALL = torch.ones(3, 2, dtype=torch.bool)
REWARDS = torch.tensor([[1.0, 10.0], [2.0, 20.0], [4.0, 40.0]])


def test_returns_run_along_time_and_columns_do_not_mix() -> None:
    advantages, returns = calculate_adv_and_returns(
        "reinpp", rewards=REWARDS, dones=NO_DONES, loss_mask=ALL, gamma=0.5, normalize_advantages=False
    )
    assert returns.tolist() == [[3.0, 30.0], [4.0, 40.0], [4.0, 40.0]]
    assert torch.equal(advantages, returns)


def test_returns_stop_at_dones_and_pass_over_invalid_steps() -> None:
    dones = torch.tensor([[0, 0], [1, 0], [0, 0]]).bool()
    mask = torch.tensor([[1, 1], [1, 0], [1, 1]]).bool()
    _, returns = calculate_adv_and_returns(
        "reinpp", rewards=REWARDS, dones=dones, loss_mask=mask, gamma=0.5, normalize_advantages=False
    )
    assert returns.tolist() == [[2.0, 30.0], [2.0, 0.0], [4.0, 40.0]]


def test_an_invalid_step_neither_discounts_nor_rewards() -> None:
    mask = torch.tensor([[1, 1], [0, 1], [1, 1]]).bool()
    _, returns = calculate_adv_and_returns(
        "reinpp", rewards=REWARDS + 100.0 * ~mask, dones=NO_DONES, loss_mask=mask, gamma=0.5, normalize_advantages=False
    )
    # 1 + 0.5 * 4 in the first column: the step between is not there.
    assert returns.tolist() == [[3.0, 30.0], [0.0, 40.0], [4.0, 40.0]]


def test_normalised_over_all_valid_steps_together() -> None:
    advantages, _ = calculate_adv_and_returns(
        "reinpp",
        rewards=torch.tensor([[0.0, 0.0], [1.0, 3.0]]),
        dones=NO_DONES[:2],
        loss_mask=torch.tensor([[0, 0], [1, 1]]).bool(),
        gamma=1.0,
        normalize_advantages=True,
    )
    # Values 1 and 3: mean 2, sample deviation sqrt 2.
    assert advantages.flatten().tolist() == pytest.approx([0.0, 0.0, -(0.5**0.5), 0.5**0.5], rel=1e-5)


def test_baseline_is_the_mean_score_of_the_group() -> None:
    rewards = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 5.0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 1], [0, 1, 1]]).bool()
    advantages, returns = calculate_adv_and_returns(
        "reinpp_baseline",
        rewards=rewards,
        dones=torch.zeros(3, 3, dtype=torch.bool),
        loss_mask=mask,
        group_ids=torch.tensor([4, 4, 9]),
        gamma=1.0,
        normalize_advantages=False,
    )
    # Group 4 has scores 1 and 0, baseline 0.5; group 9 is its own baseline.
    assert advantages.tolist() == [[0.5, -0.5, 0.0], [0.5, -0.5, 0.0], [0.0, -0.5, 0.0]]
    assert returns[0].tolist() == [1.0, 0.0, 5.0]
