"""Every sequence is computed once, budgets hold, and ranks have about equal work."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf.algorithms.token_batches import SequenceCost, assign_to_ranks, bundle_sequences, plan_token_batches
from rlinf.errors import AlgorithmError

COST = SequenceCost(quadratic=1 / 500)
lengths_lists = st.lists(st.integers(1, 300), min_size=1, max_size=60)


def lower_bound(costs, num_ranks):
    """No spread is better: the mean, the largest, and two of the largest that must share a rank."""
    descending = sorted(costs, reverse=True)
    pair = sum(descending[num_ranks - 1 : num_ranks + 1]) if len(descending) > num_ranks else 0
    return max(sum(costs) / num_ranks, descending[0], pair)


def work(ranks):
    return [sum(bundle.cost for bundle in rank) for rank in ranks]


def members(bundles):
    return sorted(i for bundle in bundles for i in bundle.members)


def passes(lengths_by_rank, **budget):
    return plan_token_batches([bundle_sequences(lengths, cost=COST) for lengths in lengths_by_rank], **budget)


@given(lengths_lists, st.integers(1, 8))
@settings(max_examples=100, deadline=None)
def test_every_sequence_goes_to_one_rank(lengths, num_ranks):
    num_ranks = min(num_ranks, len(lengths))
    ranks = assign_to_ranks(bundle_sequences(lengths, cost=COST), num_ranks)
    assert members(bundle for rank in ranks for bundle in rank) == list(range(len(lengths)))
    assert len(ranks) == num_ranks
    assert all(ranks)
    # What list scheduling guarantees, whatever the lengths.
    costs = [COST.of(length) for length in lengths]
    assert max(work(ranks)) <= sum(costs) / num_ranks + max(costs) * (1 - 1 / num_ranks) + 1e-6


@given(st.integers(0, 10_000), st.sampled_from([2, 4, 8]), st.integers(8, 32))
@settings(max_examples=60, deadline=None)
def test_random_lengths_are_balanced_closely(seed, num_ranks, per_rank):
    draw = random.Random(seed)
    lengths = [min(4096, int(draw.lognormvariate(5, 1)) + 1) for _ in range(num_ranks * per_rank)]
    bound = lower_bound([COST.of(length) for length in lengths], num_ranks)
    assert max(work(assign_to_ranks(bundle_sequences(lengths, cost=COST), num_ranks))) <= 1.2 * bound


def test_long_answers_are_spread():
    lengths = [1000] * 4 + [10] * 4
    bound = lower_bound([COST.of(length) for length in lengths], 2)
    assert max(work(assign_to_ranks(bundle_sequences(lengths, cost=COST), 2))) <= 1.01 * bound


groups_lists = st.lists(
    st.tuples(st.integers(1, 99), st.lists(st.integers(1, 100), min_size=1, max_size=9)), min_size=1
)


@given(groups_lists, st.integers(1, 8), st.integers(200, 1500), st.none() | st.integers(1, 9))
@settings(max_examples=200, deadline=None)
def test_answers_to_one_prompt_stay_together_within_the_budget(groups, num_ranks, max_tokens, max_samples):
    prompts = [(number,) * size for number, (size, answers) in enumerate(groups) for _ in answers]
    lengths = [size + answer for size, answers in groups for answer in answers]
    num_ranks = min(num_ranks, len(lengths))
    budget = {"max_tokens": max_tokens, "max_samples": max_samples}
    bundles = bundle_sequences(lengths, prefixes=prompts, num_ranks=num_ranks, cost=COST, **budget)
    assert members(bundles) == list(range(len(lengths)))
    for bundle in bundles:
        first = prompts[bundle.members[0]]
        assert all(prompts[i] == first for i in bundle.members)
        assert bundle.tokens == sum(lengths[i] for i in bundle.members) <= max_tokens
        assert len(bundle.members) <= (max_samples or len(lengths))
        saved = len(first) * (len(bundle.members) - 1)
        assert bundle.cost == pytest.approx(sum(COST.of(lengths[i]) for i in bundle.members) - saved)
    ranks = assign_to_ranks(bundles, num_ranks)
    costs = [COST.of(length) for length in lengths]
    quarter = sum(costs) / num_ranks / 4
    assert max(work(ranks)) <= sum(costs) / num_ranks + max(*costs, quarter, 0) + 1e-6
    plans = plan_token_batches(ranks, **budget)
    for rank, plan in zip(ranks, plans, strict=True):
        real = [batch.indices.tolist() for batch in plan if not batch.is_padding]
        assert sorted(i for batch in real for i in batch) == members(rank)
        assert all(sum(lengths[i] for i in batch) <= max_tokens for batch in real)
        assert all(len(batch) <= (max_samples or len(batch)) for batch in real)


def test_a_whole_group_is_one_bundle_where_it_fits():
    bundles = bundle_sequences([5, 6, 9, 7], prefixes=[(1, 2), (1, 2), (3, 4), (1, 2)], max_tokens=100)
    assert [bundle.members for bundle in bundles] == [(0, 1, 3), (2,)]
    assert [bundle.tokens for bundle in bundles] == [18, 9]
    assert [bundle.cost for bundle in bundles] == [18 - 2 * 2, 9]
    split = bundle_sequences([5, 6, 9, 7], prefixes=[(1, 2), (1, 2), (3, 4), (1, 2)], max_tokens=12)
    assert [bundle.members for bundle in split] == [(0, 1), (2,), (3,)]


@given(st.lists(lengths_lists, min_size=1, max_size=4), st.integers(300, 1500), st.none() | st.integers(1, 9))
@settings(max_examples=150, deadline=None)
def test_micro_batches_hold_every_sequence_once_within_the_budget(ranks, max_tokens, max_samples):
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
        assert costs == sorted(costs, reverse=True)


def test_a_rank_with_little_spreads_it_instead_of_padding():
    plans = passes([[100, 90, 80, 70], [10, 10, 10, 10, 10]], max_tokens=100)
    assert [len(plan) for plan in plans] == [4, 4]
    assert [len(batch.indices) for batch in plans[1]] == [2, 1, 1, 1]
    assert not any(batch.is_padding for batch in plans[1])
    plans = passes([[100, 90, 80], [10, 20]], max_tokens=100)
    assert [batch.is_padding for batch in plans[1]] == [False, False, True]
    assert plans[1][2].indices.tolist() == [0]


def test_the_number_of_passes_is_near_the_fewest_possible():
    draw = random.Random(0)
    lengths = [draw.randint(10, 500) for _ in range(200)]
    (plan,) = passes([lengths], max_tokens=2000)
    assert len(plan) <= 1.1 * sum(lengths) / 2000 + 1


def test_samples_alone_can_be_the_budget():
    (plan,) = passes([[5, 500, 5, 5, 5]], max_samples=2)
    assert sorted(len(batch.indices) for batch in plan) == [1, 2, 2]


def test_attention_makes_long_sequences_dearer():
    cost = SequenceCost.of_decoder(num_parameters=1_300_000_000, num_layers=28, attention_size=1536)
    assert cost.of(1000) == pytest.approx(1000 * (1 + 1000 * 28 * 1536 / 1.3e9))
    assert cost.of(20_000) > 2 * cost.of(10_000)


def test_what_cannot_be_planned_says_what_to_change():
    with pytest.raises(AlgorithmError, match=r"400 tokens, more than runner\.max_tokens_per_mbs=300"):
        passes([[20, 400]], max_tokens=300)
    with pytest.raises(AlgorithmError, match="every rank needs sequences"):
        passes([[1], []], max_tokens=10)
    with pytest.raises(AlgorithmError, match="one budget is needed"):
        passes([[1]])
    with pytest.raises(AlgorithmError, match=r"actor\.global_batch_size"):
        assign_to_ranks(bundle_sequences([1]), 2)
