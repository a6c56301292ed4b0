"""Plans of minibatches and micro-batches: all is computed once, budgets hold, and ranks have about equal work."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf.algorithms.minibatch import (
    MicroBatch,
    PrefixGroup,
    SampleOwnership,
    SequenceCost,
    assign_to_ranks,
    group_by_prefix,
    plan_micro_batches,
    plan_minibatches,
    plan_packed_micro_batches,
)
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


COST = SequenceCost(quadratic=1 / 500)
lengths_lists = st.lists(st.integers(1, 300), min_size=1, max_size=60)


def lower_bound(costs: list[float], num_ranks: int) -> float:
    """No spread is better: the mean, the largest, and two of the largest that must share a rank."""
    descending = sorted(costs, reverse=True)
    pair = sum(descending[num_ranks - 1 : num_ranks + 1]) if len(descending) > num_ranks else 0
    return max(sum(costs) / num_ranks, descending[0], pair)


def work(ranks: Sequence[Sequence[PrefixGroup]]) -> list[float]:
    return [sum(group.cost for group in rank) for rank in ranks]


def positions(groups: Iterable[PrefixGroup]) -> list[int]:
    return sorted(i for group in groups for i in group.indices)


def passes(lengths_by_rank: list[list[int]], **budget: int | None) -> list[list[MicroBatch]]:
    return plan_packed_micro_batches([group_by_prefix(lengths, cost=COST) for lengths in lengths_by_rank], **budget)


@given(lengths_lists, st.integers(1, 8))
@settings(max_examples=100, deadline=None)
def test_every_sequence_goes_to_one_rank(lengths: list[int], num_ranks: int) -> None:
    num_ranks = min(num_ranks, len(lengths))
    ranks = assign_to_ranks(group_by_prefix(lengths, cost=COST), num_ranks)
    assert positions(group for rank in ranks for group in rank) == list(range(len(lengths)))
    assert len(ranks) == num_ranks
    assert all(ranks)
    # What list scheduling guarantees, whatever the lengths.
    costs = [COST.of(length) for length in lengths]
    assert max(work(ranks)) <= sum(costs) / num_ranks + max(costs) * (1 - 1 / num_ranks) + 1e-6


@given(st.integers(0, 10_000), st.sampled_from([2, 4, 8]), st.integers(8, 32))
@settings(max_examples=60, deadline=None)
def test_random_lengths_are_balanced_closely(seed: int, num_ranks: int, per_rank: int) -> None:
    rng = random.Random(seed)
    lengths = [min(4096, int(rng.lognormvariate(5, 1)) + 1) for _ in range(num_ranks * per_rank)]
    bound = lower_bound([COST.of(length) for length in lengths], num_ranks)
    assert max(work(assign_to_ranks(group_by_prefix(lengths, cost=COST), num_ranks))) <= 1.2 * bound


def test_long_responses_are_spread() -> None:
    lengths = [1000] * 4 + [10] * 4
    bound = lower_bound([COST.of(length) for length in lengths], 2)
    assert max(work(assign_to_ranks(group_by_prefix(lengths, cost=COST), 2))) <= 1.01 * bound


prompt_groups = st.lists(
    st.tuples(st.integers(1, 99), st.lists(st.integers(1, 100), min_size=1, max_size=9)), min_size=1
)


@given(prompt_groups, st.integers(1, 8), st.integers(200, 1500), st.none() | st.integers(1, 9))
@settings(max_examples=200, deadline=None)
def test_responses_to_one_prompt_stay_together_within_the_budget(
    sizes: list[tuple[int, list[int]]], num_ranks: int, max_tokens: int, max_samples: int | None
) -> None:
    prompts = [(number,) * size for number, (size, responses) in enumerate(sizes) for _ in responses]
    lengths = [size + response for size, responses in sizes for response in responses]
    num_ranks = min(num_ranks, len(lengths))
    budget: dict[str, int | None] = {"max_tokens": max_tokens, "max_samples": max_samples}
    groups = group_by_prefix(
        lengths, prefixes=prompts, num_ranks=num_ranks, cost=COST, max_tokens=max_tokens, max_samples=max_samples
    )
    assert positions(groups) == list(range(len(lengths)))
    for group in groups:
        first = prompts[group.indices[0]]
        assert all(prompts[i] == first for i in group.indices)
        assert group.tokens == sum(lengths[i] for i in group.indices) <= max_tokens
        assert len(group.indices) <= (max_samples or len(lengths))
        saved = len(first) * (len(group.indices) - 1)
        assert group.cost == pytest.approx(sum(COST.of(lengths[i]) for i in group.indices) - saved)
    ranks = assign_to_ranks(groups, num_ranks)
    costs = [COST.of(length) for length in lengths]
    quarter = sum(costs) / num_ranks / 4
    assert max(work(ranks)) <= sum(costs) / num_ranks + max(*costs, quarter, 0) + 1e-6
    plans = plan_packed_micro_batches(ranks, **budget)
    for rank, plan in zip(ranks, plans, strict=True):
        real = [batch.indices.tolist() for batch in plan if not batch.is_padding]
        assert sorted(i for batch in real for i in batch) == positions(rank)
        assert all(sum(lengths[i] for i in batch) <= max_tokens for batch in real)
        assert all(len(batch) <= (max_samples or len(batch)) for batch in real)


def test_a_whole_group_is_one_group_where_it_fits() -> None:
    groups = group_by_prefix([5, 6, 9, 7], prefixes=[(1, 2), (1, 2), (3, 4), (1, 2)], max_tokens=100)
    assert [group.indices for group in groups] == [(0, 1, 3), (2,)]
    assert [group.tokens for group in groups] == [18, 9]
    assert [group.cost for group in groups] == [18 - 2 * 2, 9]
    split = group_by_prefix([5, 6, 9, 7], prefixes=[(1, 2), (1, 2), (3, 4), (1, 2)], max_tokens=12)
    assert [group.indices for group in split] == [(0, 1), (2,), (3,)]


@given(st.lists(lengths_lists, min_size=1, max_size=4), st.integers(300, 1500), st.none() | st.integers(1, 9))
@settings(max_examples=150, deadline=None)
def test_micro_batches_hold_every_sequence_once_within_the_budget(
    ranks: list[list[int]], max_tokens: int, max_samples: int | None
) -> None:
    plans = passes(ranks, max_tokens=max_tokens, max_samples=max_samples)
    assert len({len(plan) for plan in plans}) == 1
    for lengths, plan in zip(ranks, plans, strict=True):
        real = [batch.indices.tolist() for batch in plan if not batch.is_padding]
        assert sorted(i for batch in real for i in batch) == list(range(len(lengths)))
        assert all(sum(lengths[i] for i in batch) <= max_tokens for batch in real)
        assert all(len(batch) <= (max_samples or len(batch)) for batch in real)
        padding = [batch.indices.tolist() for batch in plan if batch.is_padding]
        assert all(lengths[i] == min(lengths) for batch in padding for i in batch)
        costs = [sum(COST.of(lengths[i]) for i in batch) for batch in real]
        assert costs == pytest.approx(sorted(costs, reverse=True))  # sums of the same costs in another order may differ


def test_a_rank_with_little_spreads_it_instead_of_padding() -> None:
    plans = passes([[100, 90, 80, 70], [10, 10, 10, 10, 10]], max_tokens=100)
    assert [len(plan) for plan in plans] == [4, 4]
    assert [len(batch.indices) for batch in plans[1]] == [2, 1, 1, 1]
    assert not any(batch.is_padding for batch in plans[1])
    plans = passes([[100, 90, 80], [10, 20]], max_tokens=100)
    assert [batch.is_padding for batch in plans[1]] == [False, False, True]
    assert plans[1][2].indices.tolist() == [0]


def test_the_number_of_passes_is_near_the_fewest_possible() -> None:
    rng = random.Random(0)
    lengths = [rng.randint(10, 500) for _ in range(200)]
    (plan,) = passes([lengths], max_tokens=2000)
    assert len(plan) <= 1.1 * sum(lengths) / 2000 + 1


def test_samples_alone_can_be_the_budget() -> None:
    (plan,) = passes([[5, 500, 5, 5, 5]], max_samples=2)
    assert sorted(len(batch.indices) for batch in plan) == [1, 2, 2]


def test_attention_makes_long_sequences_cost_more() -> None:
    cost = SequenceCost.of_decoder(num_parameters=1_300_000_000, num_layers=28, attention_size=1536)
    assert cost.of(1000) == pytest.approx(1000 * (1 + 1000 * 28 * 1536 / 1.3e9))
    assert cost.of(20_000) > 2 * cost.of(10_000)


def test_what_cannot_be_planned_says_what_to_change() -> None:
    with pytest.raises(AlgorithmError, match=r"400 tokens, more than runner\.max_tokens_per_mbs=300"):
        passes([[20, 400]], max_tokens=300)
    with pytest.raises(AlgorithmError, match="every rank needs sequences"):
        passes([[1], []], max_tokens=10)
    with pytest.raises(AlgorithmError, match="one budget is needed"):
        passes([[1]])
    with pytest.raises(AlgorithmError, match=r"actor\.global_batch_size"):
        assign_to_ranks(group_by_prefix([1]), 2)


def test_what_a_response_continues_counts_as_shared() -> None:
    context = tuple(range(20))
    groups = group_by_prefix(
        [25, 30, 40], prefixes=[context, (*context, 50, 51), tuple(range(100, 130))], responses=[(50, 51, 52)] * 3
    )
    assert [group.indices for group in groups] == [(0, 1), (2,)]
    assert groups[0].tokens == 55
    assert groups[0].cost == 55 - 22
    alone = group_by_prefix([25, 30, 40], prefixes=[context, (*context, 50, 51), tuple(range(100, 130))])
    assert alone[0].cost == 55 - 20


@pytest.mark.parametrize("shares", [False, True])
def test_the_branches_of_an_episode_stay_together_beyond_any_bound(shares: bool) -> None:
    prompts = [(1, 2), (3, 4), (1, 2), (3, 4)]
    prefixes = prompts if shares else None
    groups = group_by_prefix([5, 6, 7, 8], prefixes=prefixes, episodes=[0, 0, 1, 2], max_tokens=10, num_ranks=2)
    assert [group.indices for group in groups] == [(0, 1), (2,), (3,)]
    assert groups[0].tokens == 11
    assert group_by_prefix([5, 7], prefixes=[(1, 2)] * 2, episodes=[0, 0])[0].cost == 10
    together = group_by_prefix([5, 6, 7, 8], prefixes=prefixes, episodes=[0, 0, 1, 2])
    assert [group.indices for group in together] == ([(0, 1, 2, 3)] if shares else [(0, 1), (2,), (3,)])
    with pytest.raises(AlgorithmError, match=r"branches of an episode have 11 tokens.*max_tokens_per_mbs=10"):
        plan_packed_micro_batches([groups], max_tokens=10)
