"""Raw scores as advantages."""

from __future__ import annotations

import torch

from rlinf.algorithms.registry import calculate_adv_and_returns

REWARDS = torch.tensor([[1.0, 4.0, 1.0, 1.0, 0.0], [99.0, 0.0, 2.0, 3.0, 5.0]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 1, 1]]).bool()


def test_raw_is_the_masked_score() -> None:
    advantages, returns = calculate_adv_and_returns("raw", rewards=REWARDS, loss_mask=MASK)
    assert advantages.tolist() == [[1.0, 4.0, 3.0, 4.0, 5.0], [0.0, 4.0, 3.0, 4.0, 5.0]]
    assert torch.equal(advantages, returns)
