import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf.data import shared_prefixes
from rlinf.data.shared_prefixes import MIN_SHARED, find_shared_prefixes

LONG = tuple(range(MIN_SHARED + 4))
small = st.lists(st.integers(0, 1), max_size=10)


def test_an_equal_prompt_is_found_where_it_was_first() -> None:
    prompts = [(7, 8), LONG, (7, 8), LONG, (9,), LONG]
    responses = [torch.tensor([number]) for number in range(6)]
    size = len(LONG)
    assert find_shared_prefixes(prompts, responses) == [(0, 0), (1, 0), (0, 2), (1, size), (4, 0), (1, size)]


def test_a_prompt_may_begin_with_what_was_sampled_before() -> None:
    turns = [LONG, (*LONG, 70, 71, 90), (*LONG, 70, 72), (*LONG, 70, 71, 90)]
    responses = [torch.tensor([70, 71]), torch.tensor([5]), torch.tensor([6]), torch.tensor([7])]
    size = len(LONG)
    assert find_shared_prefixes(turns, responses) == [(0, 0), (0, size + 2), (0, size + 1), (1, size + 3)]


def test_a_short_prompt_is_shared_whole_or_not() -> None:
    prompts, responses = [(1, 2, 3), (1, 2), (1, 3), (1, 2, 3, 4), (1,), (1, 3, 9)], [[4], [], [9], [], [], []]
    assert find_shared_prefixes(prompts, responses) == [(0, 0), (0, 2), (2, 0), (0, 4), (0, 1), (2, 3)]


@given(st.lists(st.tuples(small, small), min_size=1, max_size=10), st.integers(1, 6))
@settings(max_examples=200, deadline=None)
def test_the_first_sequence_with_the_longest_prefix_is_found(
    pairs: list[tuple[list[int], list[int]]], minimum: int
) -> None:
    prompts = [[2, *prompt] for prompt, _ in pairs]
    wholes = [[*prompt, *response] for prompt, (_, response) in zip(prompts, pairs, strict=True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_prefixes, "MIN_SHARED", minimum)
        found = find_shared_prefixes(prompts, [response for _, response in pairs])
    for number, prompt in enumerate(prompts):
        common = [len(os.path.commonprefix([prompt, before])) for before in wholes[:number]]
        most = max(common, default=0)
        expected = (common.index(most), most) if most >= min(minimum, len(prompt)) else (number, 0)
        assert found[number] == expected
