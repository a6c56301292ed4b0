"""Plans of minibatches and micro-batches."""

from __future__ import annotations

import pytest
import torch

from rlinf.algorithms.minibatch import SampleOwnership, plan_micro_batches, plan_minibatches
from rlinf.errors import AlgorithmError


def test_every_sample_is_in_exactly_one_minibatch() -> None:
    plan = plan_minibatches(10, 4, seed=1, step=0, epoch=0)
    assert [len(part) for part in plan] == [4, 4, 2]
    assert sorted(torch.cat(plan).tolist()) == list(range(10))


def test_the_shuffle_repeats_for_equal_arguments_and_differs_for_others() -> None:
    def order(seed: int, step: int, epoch: int) -> tuple[int, ...]:
        return tuple(plan_minibatches(64, 64, seed=seed, step=step, epoch=epoch)[0].tolist())

    orders = {order(seed, step, epoch) for seed in (0, 1) for step in (0, 1) for epoch in (0, 1)}
    assert len(orders) == 8
    assert order(0, 1, 0) == order(0, 1, 0)


@pytest.mark.parametrize("counts", [[12], [6, 6], [11, 1], [0, 12], [5, 3, 4]])
@pytest.mark.parametrize("micro_batch_size", [1, 2, 5, 100])
def test_ranks_run_equally_many_micro_batches_and_cover_the_minibatch(counts: list[int], micro_batch_size: int) -> None:
    ownership = SampleOwnership.contiguous(counts)
    starts = [sum(counts[:rank]) for rank in range(len(counts))]
    for minibatch in plan_minibatches(12, 5, seed=0, step=0, epoch=0):
        plans = [
            plan_micro_batches(minibatch, ownership, rank=rank, micro_batch_size=micro_batch_size)
            for rank in range(len(counts))
        ]
        assert len({len(plan) for plan in plans}) == 1
        covered = [
            starts[rank] + position
            for rank, plan in enumerate(plans)
            for batch in plan
            if not batch.is_padding
            for position in batch.indices.tolist()
        ]
        assert sorted(covered) == sorted(minibatch.tolist())
        assert all(len(batch.indices) <= micro_batch_size for plan in plans for batch in plan)


def test_padding_computes_one_own_sample_with_its_mask_cleared() -> None:
    ownership = SampleOwnership.contiguous([1, 3])
    plan = plan_micro_batches(torch.tensor([1, 2, 3]), ownership, rank=0, micro_batch_size=2)
    assert [batch.is_padding for batch in plan] == [True, True]
    assert plan[0].indices.tolist() == [0]
    assert plan[0].masked(torch.ones(1, 4, dtype=torch.bool)).tolist() == [[False] * 4]
    nothing = plan_micro_batches(torch.tensor([0]), SampleOwnership.contiguous([1, 0]), rank=1, micro_batch_size=2)
    assert [batch.indices.tolist() for batch in nothing] == [[]]


def test_ownership_of_scattered_samples() -> None:
    ownership = SampleOwnership.from_ids([torch.tensor([3, 0]), torch.tensor([1, 2])])
    assert ownership.rank_of.tolist() == [0, 1, 1, 0]
    assert ownership.position_of.tolist() == [1, 0, 1, 0]
    with pytest.raises(AlgorithmError, match="exactly once"):
        SampleOwnership.from_ids([torch.tensor([0, 1]), torch.tensor([1])])


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(AlgorithmError, match="global_batch_size=0"):
        plan_minibatches(4, 0, seed=0, step=0, epoch=0)
    with pytest.raises(AlgorithmError, match="rank=2"):
        plan_micro_batches(torch.tensor([0]), SampleOwnership.contiguous([1, 1]), rank=2, micro_batch_size=1)
