"""Token, action and chunk level."""

from __future__ import annotations

import pytest
import torch

from rlinf.algorithms.levels import LEVELS, expand_to_level, mask_at_level, reduce_to_level
from rlinf.errors import AlgorithmError

PER_TOKEN = torch.tensor([[[1.0, 2.0], [4.0, 8.0]], [[16.0, 32.0], [float("nan"), 5.0]]])
EXECUTED = torch.tensor([[True, True], [True, False]])


def test_reduction_sums_executed_actions_only() -> None:
    assert reduce_to_level(PER_TOKEN, EXECUTED, "chunk_level").tolist() == [[15.0], [48.0]]
    assert reduce_to_level(PER_TOKEN, EXECUTED, "action_level").tolist() == [[3.0, 12.0], [48.0, 0.0]]
    assert reduce_to_level(PER_TOKEN, EXECUTED, "token_level")[1].tolist() == [[16.0, 32.0], [0.0, 0.0]]


def test_masks_advantages_and_logprobs_have_one_shape_at_every_level() -> None:
    for level in LEVELS:
        reduced = reduce_to_level(PER_TOKEN, EXECUTED, level)
        mask = mask_at_level(EXECUTED, level, action_dim=2)
        advantages = expand_to_level(torch.tensor([[1.0], [2.0]]), level, num_actions=2, action_dim=2)
        assert reduced.shape == mask.shape == advantages.shape
        assert mask.sum().item() == {"token_level": 6, "action_level": 3, "chunk_level": 2}[level]
        assert advantages.flatten(1).unique(dim=1).tolist() == [[1.0], [2.0]]


def test_a_resting_sample_counts_at_no_level() -> None:
    executed = torch.tensor([[False, False]])
    assert not any(mask_at_level(executed, level, action_dim=3).any() for level in LEVELS)


def test_action_level_advantages_reach_their_own_tokens() -> None:
    expanded = expand_to_level(torch.tensor([[1.0, 2.0]]), "token_level", num_actions=2, action_dim=3)
    assert expanded.tolist() == [[[1.0] * 3, [2.0] * 3]]


def test_advantages_finer_than_the_ratio_are_refused() -> None:
    with pytest.raises(AlgorithmError, match="logprob_type"):
        expand_to_level(torch.zeros(4, 2), "chunk_level", num_actions=2, action_dim=1)
    with pytest.raises(AlgorithmError, match="fit"):
        expand_to_level(torch.zeros(4), "chunk_level", num_actions=2, action_dim=1)
    with pytest.raises(AlgorithmError, match="token_level"):
        reduce_to_level(PER_TOKEN, EXECUTED, "step_level")


def test_sums_of_half_precision_are_single_precision() -> None:
    tokens = torch.ones(1, 300, 1, dtype=torch.bfloat16)
    total = reduce_to_level(tokens, torch.ones(1, 300, dtype=torch.bool), "chunk_level")
    assert total.dtype == torch.float32
    assert total.item() == 300.0
    tokens[0, 0] = 2.0
    assert reduce_to_level(tokens, torch.ones(1, 300, dtype=torch.bool), "chunk_level").item() == 301.0
