"""GRPO and Dr. GRPO: scores against those of their group."""

from __future__ import annotations

import pytest
import torch

from rlinf.algorithms.registry import calculate_adv_and_returns
from rlinf.errors import AlgorithmError

# Two groups, interleaved: group 5 has scores 1, 3, 5 and group 2 has scores 4, 4.
GROUP_IDS = torch.tensor([5, 2, 5, 2, 5])
REWARDS = torch.tensor([[1.0, 4.0, 1.0, 1.0, 0.0], [99.0, 0.0, 2.0, 3.0, 5.0]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 1, 1]]).bool()


def test_grpo_golden_numbers_by_group_id() -> None:
    advantages, returns = calculate_adv_and_returns(
        "grpo", rewards=REWARDS, loss_mask=MASK, group_ids=GROUP_IDS, normalize_advantages=True
    )
    # Group 5: mean 3, sample deviation 2. Group 2: equal scores.
    assert advantages[0].tolist() == pytest.approx([-1.0, 0.0, 0.0, 0.0, 1.0], abs=1e-5)
    assert advantages[1].tolist() == pytest.approx([0.0, 0.0, 0.0, 0.0, 1.0], abs=1e-5)
    assert returns[0].tolist() == [1.0, 4.0, 3.0, 4.0, 5.0]


def test_dr_grpo_only_subtracts_the_mean() -> None:
    advantages, _ = calculate_adv_and_returns(
        "grpo", rewards=REWARDS, loss_mask=MASK, group_ids=GROUP_IDS, normalize_advantages=False
    )
    assert advantages[0].tolist() == pytest.approx([-2.0, 0.0, 0.0, 0.0, 2.0])


def test_grpo_does_not_depend_on_position() -> None:
    order = torch.tensor([4, 1, 0, 3, 2])
    plain, _ = calculate_adv_and_returns(
        "grpo", rewards=REWARDS, loss_mask=MASK, group_ids=GROUP_IDS, normalize_advantages=True
    )
    shuffled, _ = calculate_adv_and_returns(
        "grpo",
        rewards=REWARDS[:, order],
        loss_mask=MASK[:, order],
        group_ids=GROUP_IDS[order],
        normalize_advantages=True,
    )
    assert torch.allclose(shuffled, plain[:, order])


@pytest.mark.parametrize("name", ["grpo", "rloo"])
def test_groups_of_one_and_of_equal_scores_have_advantage_zero(name: str) -> None:
    # A group of five scores of 100.1: their float32 mean is not 100.1, and the error over the deviation would be 1.
    scores = torch.tensor([[100.1, 100.1, 100.1, 100.1, 100.1, -3.0]])
    ids = torch.tensor([0, 0, 0, 0, 0, 1])
    advantages, _ = calculate_adv_and_returns(
        name, rewards=scores, loss_mask=torch.ones_like(scores).bool(), group_ids=ids
    )
    assert advantages.tolist() == [[0.0] * 6]


def test_trajectories_never_played_do_not_move_their_groups_mean() -> None:
    mask = torch.tensor([[1, 1, 0]]).bool()
    advantages, _ = calculate_adv_and_returns(
        "grpo",
        rewards=torch.tensor([[1.0, 3.0, 50.0]]),
        loss_mask=mask,
        group_ids=torch.zeros(3).long(),
        normalize_advantages=False,
    )
    assert advantages.tolist() == [[-1.0, 1.0, 0.0]]


def test_group_ids_must_match_the_batch() -> None:
    with pytest.raises(AlgorithmError, match="B = 5"):
        calculate_adv_and_returns("rloo", rewards=REWARDS, loss_mask=MASK, group_ids=torch.zeros(4).long())
