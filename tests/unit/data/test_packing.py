import pytest
import torch

from rlinf.data.packing import pack_responses, pack_sequences, place
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


def test_prompts_that_only_begin_alike_are_not_shared() -> None:
    packed, where = pack_responses([[1, 2], [1, 3], [1]], [[4], [5], [6]], share_prompts=True)
    assert packed.token_ids.tolist() == [1, 2, 4, 1, 3, 5, 1, 6]
    assert where.tolist() == [False, False, True, False, False, True, False, True]
    assert packed.shared == (0, 0, 0)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(AlgorithmError, match=r"lengths \[2, 0\]"):
        pack_sequences([[1, 2], []])
    with pytest.raises(AlgorithmError, match="needs sequences"):
        pack_sequences([])
    with pytest.raises(AlgorithmError, match="every prompt needs"):
        pack_responses([[]], [[1]])
    with pytest.raises(AlgorithmError, match="2 values for 1 tokens"):
        place([torch.zeros(2)], torch.tensor([False, True]))
