import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf.data import shared_prefixes
from rlinf.data.packing import pack_responses, pack_sequences, place
from rlinf.data.shared_prefixes import MIN_SHARED
from rlinf.errors import AlgorithmError


def test_sequences_lie_end_to_end() -> None:
    packed = pack_sequences([[5, 6, 7], [8], [9, 10]])
    assert packed.token_ids.tolist() == [5, 6, 7, 8, 9, 10]
    assert packed.position_ids.tolist() == [0, 1, 2, 0, 0, 1]
    assert packed.sequence_ids.tolist() == [0, 0, 0, 1, 2, 2]
    assert packed.boundaries == [0, 3, 4, 6]
    assert (packed.num_tokens, packed.num_sequences) == (6, 3)
    assert packed.previous.tolist() == [0, 0, 1, 3, 4, 4]
    assert packed.shared == (0, 0, 0)
    moved = packed.to(torch.device("cpu"))
    assert torch.equal(moved.token_ids, packed.token_ids)
    assert moved.lengths == packed.lengths


def test_answers_are_told_from_prompts_and_carry_their_values() -> None:
    packed, where = pack_responses([[1, 2], [3]], [[4], [5, 6]])
    assert packed.token_ids.tolist() == [1, 2, 4, 3, 5, 6]
    assert where.tolist() == [False, False, True, False, True, True]
    placed = place([torch.tensor([0.5]), torch.tensor([1.5, 2.5])], where)
    assert placed.tolist() == [0, 0, 0.5, 0, 1.5, 2.5]


def test_equal_prompts_lie_in_the_pack_once() -> None:
    prompts, answers = [[1, 2], [3], [1, 2], [3], [1, 2]], [[4], [5, 6], [7, 8], [9], []]
    packed, where = pack_responses(prompts, answers, share_prompts=True)
    assert packed.token_ids.tolist() == [1, 2, 4, 3, 5, 6, 7, 8, 9]
    assert where.tolist() == [False, False, True, False, True, True, True, True, True]
    assert packed.position_ids.tolist() == [0, 1, 2, 0, 1, 2, 2, 3, 1]
    assert packed.sequence_ids.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 3]
    assert packed.previous.tolist() == [0, 0, 1, 3, 3, 4, 1, 6, 3]
    assert packed.lengths == (3, 3, 4, 2, 2)
    assert packed.shared == (0, 0, 2, 1, 2)
    own, places = packed.boundaries, packed.places
    for number, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        assert packed.token_ids[places[own[number] : own[number + 1]]].tolist() == prompt + answer
    assert packed.num_tokens == 9


def test_a_few_tokens_that_prompts_begin_with_are_not_shared() -> None:
    packed, where = pack_responses([[1, 2], [1, 3], [1]], [[4], [5], [6]], share_prompts=True)
    assert packed.token_ids.tolist() == [1, 2, 4, 1, 3, 5, 6]
    assert where.tolist() == [False, False, True, False, False, True, True]
    assert packed.shared == (0, 0, 1)


def test_a_context_lies_in_the_pack_once_wherever_an_earlier_sequence_has_it() -> None:
    prompt = list(range(MIN_SHARED))
    prompts = [prompt, [*prompt, 70, 80], [*prompt[:-1], 99], [*prompt, 70, 71, 90]]
    packed, where = pack_responses(prompts, [[70, 71], [81], [70], [70]], share_prompts=True)
    # The last one's context holds what the first one sampled; of the third too few tokens are common.
    assert packed.shared == (0, MIN_SHARED + 1, 0, MIN_SHARED + 2)
    assert packed.token_ids.tolist() == [*prompt, 70, 71, 80, 81, *prompt[:-1], 99, 70, 90, 70]
    assert where.nonzero().flatten().tolist() == [16, 17, 19, 36, 38]
    assert packed.previous[[18, 37]].tolist() == [16, 17]


def test_equal_responses_are_not_shared() -> None:
    packed, where = pack_responses([[1, 2]] * 2, [[5, 6], [5, 6]], share_prompts=True)
    assert packed.token_ids.tolist() == [1, 2, 5, 6, 5, 6]
    assert int(where.sum()) == 4


small = st.lists(st.integers(0, 1), max_size=12)


@given(st.lists(st.tuples(small, small), min_size=1, max_size=8), st.integers(1, 6))
@settings(max_examples=150, deadline=None)
def test_every_sequence_can_be_read_from_the_pack(pairs: list[tuple[list[int], list[int]]], minimum: int) -> None:
    pairs = [([2, *prompt], response) for prompt, response in pairs]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_prefixes, "MIN_SHARED", minimum)
        packed, where = pack_responses(*zip(*pairs, strict=True), share_prompts=True)
    wholes = [[*prompt, *response] for prompt, response in pairs]
    responses = []
    for number, ((prompt, _), whole) in enumerate(zip(pairs, wholes, strict=True)):
        at = packed.places[packed.boundaries[number] : packed.boundaries[number + 1]]
        assert packed.token_ids[at].tolist() == whole
        assert packed.position_ids[at].tolist() == list(range(len(whole)))
        assert packed.previous[at[1:]].tolist() == at[:-1].tolist()
        assert where[at[len(prompt) :]].all()
        responses += at[len(prompt) :].tolist()
        # As much is shared as any earlier sequence has, and never of the response.
        common = [len(os.path.commonprefix([prompt, before])) for before in wholes[:number]]
        most = max(common, default=0)
        assert packed.shared[number] == (most if most >= min(minimum, len(prompt)) else 0)
    assert responses == where.nonzero().flatten().tolist()
    assert packed.num_tokens == sum(packed.lengths) - sum(packed.shared)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(AlgorithmError, match=r"lengths \[2, 0\]"):
        pack_sequences([[1, 2], []])
    with pytest.raises(AlgorithmError, match="needs sequences"):
        pack_sequences([])
    with pytest.raises(AlgorithmError, match="every prompt needs"):
        pack_responses([[]], [[1]])
    with pytest.raises(AlgorithmError, match="2 values for 1 tokens"):
        place([torch.zeros(2)], torch.tensor([False, True]))


def test_prompts_with_other_images_share_nothing() -> None:
    prompt, responses = list(range(20)), [[1], [2], [3], [4]]
    images = [(b"a",), (b"b",), (b"a",), ()]
    packed, _ = pack_responses([prompt] * 4, responses, share_prompts=True, images=images)
    assert packed.shared == (0, 0, 20, 0)
    assert packed.images == tuple(images)
    without, _ = pack_responses([prompt] * 4, responses, share_prompts=True)
    assert without.shared == (0, 20, 20, 20)
    assert without.images == ()
