"""Every sequence is computed once, budgets hold, and ranks have about equal work."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf.algorithms.token_batches import SequenceCost, assign_to_ranks, plan_token_batches
from rlinf.errors import AlgorithmError

COST = SequenceCost(quadratic=1 / 500)
lengths_lists = st.lists(st.integers(1, 300), min_size=1, max_size=60)


def lower_bound(costs, num_ranks):
    """No spread is better: the mean, the largest, and two of the largest that must share a rank."""
    descending = sorted(costs, reverse=True)
    pair = sum(descending[num_ranks - 1 : num_ranks + 1]) if len(descending) > num_ranks else 0
    return max(sum(costs) / num_ranks, descending[0], pair)


def work(lengths, ranks):
    return [sum(COST.of(lengths[i]) for i in rank) for rank in ranks]


@given(lengths_lists, st.integers(1, 8), st.booleans())
@settings(max_examples=100, deadline=None)
def test_every_sequence_goes_to_one_rank(lengths, num_ranks, balance):
    num_ranks = min(num_ranks, len(lengths))
    ranks = assign_to_ranks(lengths, num_ranks, cost=COST if balance else None)
    assert sorted(i for rank in ranks for i in rank) == list(range(len(lengths)))
    assert len(ranks) == num_ranks
    assert all(ranks)
    if balance:
        # What list scheduling guarantees, whatever the lengths.
        costs = [COST.of(length) for length in lengths]
        assert max(work(lengths, ranks)) <= sum(costs) / num_ranks + max(costs) * (1 - 1 / num_ranks) + 1e-6
    else:
        assert max(map(len, ranks)) - min(map(len, ranks)) <= 1


@given(st.integers(0, 10_000), st.sampled_from([2, 4, 8]), st.integers(8, 32))
@settings(max_examples=60, deadline=None)
def test_random_lengths_are_balanced_closely(seed, num_ranks, per_rank):
    draw = random.Random(seed)
    lengths = [min(4096, int(draw.lognormvariate(5, 1)) + 1) for _ in range(num_ranks * per_rank)]
    bound = lower_bound([COST.of(length) for length in lengths], num_ranks)
    assert max(work(lengths, assign_to_ranks(lengths, num_ranks, cost=COST))) <= 1.2 * bound


def test_without_balance_long_answers_make_a_rank_slow():
    lengths = [1000] * 4 + [10] * 4
    bound = lower_bound([COST.of(length) for length in lengths], 2)
    assert max(work(lengths, assign_to_ranks(lengths, 2))) > 1.9 * bound
    assert max(work(lengths, assign_to_ranks(lengths, 2, cost=COST))) <= 1.01 * bound


@given(st.lists(lengths_lists, min_size=1, max_size=4), st.integers(300, 1500), st.none() | st.integers(1, 9))
@settings(max_examples=150, deadline=None)
def test_micro_batches_hold_every_sequence_once_within_the_budget(ranks, max_tokens, max_samples):
    plans = plan_token_batches(ranks, max_tokens=max_tokens, max_samples=max_samples, cost=COST)
    assert len({len(plan) for plan in plans}) == 1
    for lengths, plan in zip(ranks, plans, strict=True):
        real = [batch.indices.tolist() for batch in plan if not batch.is_padding]
        assert sorted(i for batch in real for i in batch) == list(range(len(lengths)))
        assert all(sum(lengths[i] for i in batch) <= max_tokens for batch in real)
        assert all(len(batch) <= (max_samples or len(batch)) for batch in real)
        padding = [batch.indices.tolist() for batch in plan if batch.is_padding]
        assert all(lengths[i] == min(lengths) for batch in padding for i in batch)
        costs = [sum(COST.of(lengths[i]) for i in batch) for batch in real]
        assert costs == sorted(costs, reverse=True)


def test_a_rank_with_little_spreads_it_instead_of_padding():
    plans = plan_token_batches([[100, 90, 80, 70], [10, 10, 10, 10, 10]], max_tokens=100)
    assert [len(plan) for plan in plans] == [4, 4]
    assert [len(batch.indices) for batch in plans[1]] == [2, 1, 1, 1]
    assert not any(batch.is_padding for batch in plans[1])
    plans = plan_token_batches([[100, 90, 80], [10, 20]], max_tokens=100)
    assert [batch.is_padding for batch in plans[1]] == [False, False, True]
    assert plans[1][2].indices.tolist() == [0]


def test_the_number_of_passes_is_near_the_fewest_possible():
    draw = random.Random(0)
    lengths = [draw.randint(10, 500) for _ in range(200)]
    (plan,) = plan_token_batches([lengths], max_tokens=2000)
    assert len(plan) <= 1.1 * sum(lengths) / 2000 + 1


def test_samples_alone_can_be_the_budget():
    (plan,) = plan_token_batches([[5, 500, 5, 5, 5]], max_samples=2)
    assert sorted(len(batch.indices) for batch in plan) == [1, 2, 2]


def test_attention_makes_long_sequences_dearer():
    cost = SequenceCost.of_decoder(num_parameters=1_300_000_000, num_layers=28, hidden_size=1536)
    assert cost.of(1000) == pytest.approx(1000 * (1 + 1000 * 28 * 1536 / 1.3e9))
    assert cost.of(20_000) > 2 * cost.of(10_000)


def test_what_cannot_be_planned_says_what_to_change():
    with pytest.raises(AlgorithmError, match=r"400 tokens, more than runner\.max_tokens_per_mbs=300"):
        plan_token_batches([[20, 400]], max_tokens=300)
    with pytest.raises(AlgorithmError, match="every rank needs sequences"):
        plan_token_batches([[1], []], max_tokens=10)
    with pytest.raises(AlgorithmError, match="one budget is needed"):
        plan_token_batches([[1]])
    with pytest.raises(AlgorithmError, match=r"actor\.global_batch_size"):
        assign_to_ranks([1], 2)
