"""Masks of points that stand side by side; policies of this kind have tests of their own."""

from __future__ import annotations

import torch

from rlinf.models.vla.flow_vla import Prefix, suffix_mask


def test_blocks_see_what_is_there_and_themselves() -> None:
    there, own = torch.tensor([[True, False]]), torch.tensor([[True, False], [True, True]])
    seen = suffix_mask(there, 2, own)[0, 0].int().tolist()
    assert seen == [[1, 0, 1, 0, 0, 0], [1, 0, 1, 1, 0, 0], [1, 0, 0, 0, 1, 0], [1, 0, 0, 0, 1, 1]]


def test_the_mean_leaves_padding_out() -> None:
    output = torch.tensor([[[1.0], [3.0], [100.0]]])
    assert Prefix([], torch.tensor([[True, True, False]]), output).mean().tolist() == [[2.0]]
