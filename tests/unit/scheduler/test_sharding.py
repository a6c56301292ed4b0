"""Batches are cut into contiguous shards and joined."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlinf.scheduler.sharding import batch_length, check_cut, cut, join, pieces


@dataclasses.dataclass(frozen=True)
class Batch:
    rewards: torch.Tensor
    names: list
    extra: dict
    note: str = "kept"


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 4))
def test_shards_are_contiguous_and_complete(senders: int, receivers: int, scale: int) -> None:
    length = receivers * scale
    shards = {receiver: [] for receiver in range(receivers)}
    for sender in range(senders):
        part = list(range(sender * length, (sender + 1) * length))
        for receiver, start, stop in pieces(sender, senders, receivers, length):
            assert stop > start
            shards[receiver] += part[start:stop]
    assert sum(shards.values(), []) == list(range(senders * length))
    assert len({len(shard) for shard in shards.values()}) == 1


def test_sizes_that_do_not_divide_show_the_arithmetic() -> None:
    with pytest.raises(ValueError, match=r"2 senders x 3 = 6 elements do not divide by 4 receivers"):
        pieces(0, 2, 4, 3)


@pytest.mark.parametrize("dim", [0, 1])
def test_batches_are_cut_and_joined(dim: int) -> None:
    shape = (4, 2) if dim == 0 else (2, 4)
    batch = Batch(torch.arange(8).reshape(shape), list("abcd"), {"x": (np.arange(8).reshape(shape),)})
    assert batch_length(batch, dim) == 4
    joined = join([cut(batch, 0, 1, dim), cut(batch, 1, 4, dim)], dim)
    assert torch.equal(joined.rewards, batch.rewards)
    assert joined.names == batch.names
    assert np.array_equal(joined.extra["x"][0], batch.extra["x"][0])
    assert joined.note == "kept"
    assert cut(batch, 1, 3, dim).rewards.shape[dim] == 2


def test_groups_are_not_cut_and_lengths_must_agree() -> None:
    batch = {"group_id": torch.tensor([7, 7, 8, 8]), "x": torch.zeros(4)}
    check_cut(batch, 0, 2, 4, "actor:0", 0)
    with pytest.raises(ValueError, match="inside group 7"):
        check_cut(batch, 0, 1, 4, "actor:0", 0)
    with pytest.raises(ValueError, match="batch.y: 3"):
        batch_length({"x": torch.zeros(4), "y": torch.zeros(3)}, 0)
