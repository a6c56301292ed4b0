"""Groups without contrast, or out of bounds, are masked."""

from __future__ import annotations

import math

import torch

from rlinf.algorithms.filtering import filter_by_config, filter_groups
from rlinf.algorithms.steps import Steps
from rlinf.config.schema.algorithm import GRPOConfig

# Two groups, interleaved: group 5 has scores 1, 3, 5 and group 2 has scores 4, 4.
GROUP_IDS = torch.tensor([5, 2, 5, 2, 5])
REWARDS = torch.tensor([[1.0, 4.0, 1.0, 1.0, 0.0], [99.0, 0.0, 2.0, 3.0, 5.0]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 1, 1]]).bool()


def test_filter_masks_whole_groups_inclusively() -> None:
    def kept(low: float, high: float) -> list[bool]:
        mask = filter_groups(
            rewards=REWARDS, loss_mask=MASK, group_ids=GROUP_IDS, rewards_lower_bound=low, rewards_upper_bound=high
        )
        assert not (mask & ~MASK).any()
        return mask.any(dim=0).tolist()

    assert kept(3.0, 4.0) == [True] * 5
    assert kept(3.5, 4.0) == [False, True, False, True, False]
    assert kept(-math.inf, 3.5) == [True, False, True, False, True]


def test_filtering_without_bounds_masks_groups_whose_scores_are_equal() -> None:
    """Groups 7, 8 and 9 have the scores (1, 1), (0, 1) and (0, 0): what is masked counts in none."""
    rewards = torch.tensor([[1.0, 0.0, 1.0, 1.0, 5.0, 0.0, 0.0]])
    mask = torch.tensor([[True, True, True, True, False, True, True]])
    groups = torch.tensor([7, 8, 7, 8, 9, 9, 9])
    steps = Steps(rewards=rewards, loss_mask=mask, group_ids=groups)
    kept = filter_by_config(steps, GRPOConfig(filter_rewards=True))
    assert kept.tolist() == [[False, True, False, True, False, False, False]]


def test_one_bound_alone_leaves_the_other_side_open() -> None:
    def kept(**bounds: float) -> list[bool]:
        steps = Steps(rewards=REWARDS, loss_mask=MASK, group_ids=GROUP_IDS)
        mask = filter_by_config(steps, GRPOConfig(filter_rewards=True, **bounds))
        return mask.any(dim=0).tolist()

    assert kept(rewards_lower_bound=3.5) == [False, True, False, True, False]
    assert kept(rewards_upper_bound=3.5) == [True, False, True, False, True]
    assert kept(rewards_lower_bound=-1.0) == [True] * 5
