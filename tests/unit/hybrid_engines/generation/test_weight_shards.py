"""Shards of several devices and stages make the weight that they were cut from."""

from __future__ import annotations

import pytest
import torch

from rlinf.hybrid_engines.generation.weight_shards import Shard, join_shards, part_of

WHOLE = torch.arange(24.0).view(6, 4)


@pytest.mark.parametrize("dim", [0, 1])
def test_shards_are_joined_in_the_dimension_in_which_they_were_cut(dim: int) -> None:
    shards = [Shard(0, dim, None, part) for part in WHOLE.chunk(2, dim)]
    assert torch.equal(join_shards(shards), WHOLE)


def test_what_all_workers_have_whole_is_taken_once() -> None:
    assert torch.equal(join_shards([Shard(0, None, None, WHOLE)] * 3), WHOLE)


def test_copies_and_padding_are_left_out() -> None:
    first, second = torch.cat([WHOLE, torch.zeros(2, 4)]).chunk(2)
    shards = [Shard(0, 0, 6, first), Shard(0, 0, 6, None), Shard(0, 0, 6, second), Shard(0, 0, 6, None)]
    assert torch.equal(join_shards(shards), WHOLE)


def test_a_weight_that_two_stages_share_is_taken_once() -> None:
    shards = [Shard(stage, 0, None, part) for stage in (0, 1) for part in WHOLE.chunk(2)]
    assert torch.equal(join_shards(shards), WHOLE)


@pytest.mark.parametrize("dim", [0, 1])
def test_parts_are_where_they_are_of_the_whole(dim: int) -> None:
    whole = torch.arange(30.0).view(5, 6)
    parts = [part_of(whole, size=4, dim=dim, index=index) for index in range(3)]
    assert [part.shape[dim] for part in parts] == [4, whole.shape[dim] - 4, 0]
    assert torch.equal(torch.cat(parts, dim), whole)
    parts[1].zero_()
    assert not whole.narrow(dim, 4, 1).any(), "a part is a view"
    assert part_of(whole, size=4, dim=None, index=1) is whole
