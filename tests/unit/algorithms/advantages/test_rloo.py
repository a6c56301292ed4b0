"""RLOO: scores against the mean of the others of their group."""

from __future__ import annotations

import pytest
import torch

from rlinf.algorithms.registry import calculate_adv_and_returns

# Two groups, interleaved: group 5 has scores 1, 3, 5 and group 2 has scores 4, 4.
GROUP_IDS = torch.tensor([5, 2, 5, 2, 5])
REWARDS = torch.tensor([[1.0, 4.0, 1.0, 1.0, 0.0], [99.0, 0.0, 2.0, 3.0, 5.0]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 1, 1]]).bool()


def test_rloo_golden_numbers() -> None:
    advantages, _ = calculate_adv_and_returns("rloo", rewards=REWARDS, loss_mask=MASK, group_ids=GROUP_IDS)
    # 1 - (3 + 5) / 2, 3 - (1 + 5) / 2, 5 - (1 + 3) / 2
    assert advantages[0].tolist() == pytest.approx([-3.0, 0.0, 0.0, 0.0, 3.0])
