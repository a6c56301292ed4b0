"""Rows and packed entries are two layouts of the same sequences."""

import pytest
import torch

from rlinf.algorithms.aggregation import LOSS_AGG_FUNCS, aggregate_loss, compute_denominators
from rlinf.algorithms.sequences import count_sequences, first_of_sequences, mean_over_sequences, sum_over_sequences
from rlinf.errors import AlgorithmError

LENGTHS = [3, 1, 4, 2]
SEQUENCE_IDS = torch.repeat_interleave(torch.arange(4), torch.tensor(LENGTHS))
VALUES = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, float("nan"), 9.0, 10.0], dtype=torch.float64)
MASK = torch.tensor([True, False, True, True, True, True, True, False, False, False])


def rows(packed: torch.Tensor) -> torch.Tensor:
    padded = torch.zeros(4, 4, dtype=packed.dtype)
    for number, part in enumerate(packed.split(LENGTHS)):
        padded[number, : len(part)] = part
    return padded


def test_sums_and_means_of_packed_entries() -> None:
    assert sum_over_sequences(VALUES, MASK, SEQUENCE_IDS).tolist() == [4, 4, 4, 4, 18, 18, 18, 18, 0, 0]
    assert mean_over_sequences(VALUES, MASK, SEQUENCE_IDS).tolist() == [2, 2, 2, 4, 6, 6, 6, 6, 0, 0]
    assert count_sequences(MASK, SEQUENCE_IDS * 7 + 100).item() == 3
    first = first_of_sequences(MASK, SEQUENCE_IDS)
    assert first.nonzero().flatten().tolist() == [0, 3, 4]


def test_rows_give_the_same() -> None:
    mask = rows(MASK)
    assert sum_over_sequences(rows(VALUES), mask)[:, 0].tolist() == [4, 4, 18, 0]
    assert mean_over_sequences(rows(VALUES), mask)[:, 3].tolist() == [2, 4, 6, 0]
    assert count_sequences(mask).item() == 3
    assert first_of_sequences(mask).nonzero().tolist() == [[0, 0], [1, 0], [2, 0]]


def test_the_first_entry_under_the_mask_need_not_be_the_first_of_its_sequence() -> None:
    mask = torch.tensor([False, False, True, True, False, True, True, False, False, True])
    assert first_of_sequences(mask, SEQUENCE_IDS).nonzero().flatten().tolist() == [2, 3, 5, 9]


def test_sequences_may_lie_in_several_pieces() -> None:
    mask = torch.tensor([False, True, True, True, True, True])
    ids = torch.tensor([1, 0, 1, 0, 1, 2])
    assert first_of_sequences(mask, ids).nonzero().flatten().tolist() == [1, 2, 5]


# Under the mask: 1, 3 | 4 | 5, 6, 7. Sums of the three sequences: 4, 4, 18; means: 2, 4, 6; 8 tokens at most.
GOLDEN = {
    "token-mean": 26 / 6,
    "seq-mean-token-sum": 26 / 3,
    "seq-mean-token-sum-norm": 26 / 3 / 8,
    "seq-mean-token-mean": 12 / 3,
}


@pytest.mark.parametrize("loss_agg_func", LOSS_AGG_FUNCS)
@pytest.mark.parametrize("packed", [True, False])
def test_losses_are_aggregated_by_sequence(loss_agg_func: str, packed: bool) -> None:
    values, mask, ids = (VALUES, MASK, SEQUENCE_IDS) if packed else (rows(VALUES), rows(MASK), None)
    denominators = compute_denominators({"policy": mask}, max_tokens=8, sequence_ids=ids)["policy"]
    loss = aggregate_loss(values, mask, loss_agg_func=loss_agg_func, denominators=denominators, sequence_ids=ids)
    assert loss.item() == pytest.approx(GOLDEN[loss_agg_func])


def test_packed_masks_do_not_tell_how_long_a_sequence_can_be() -> None:
    with pytest.raises(AlgorithmError, match="max_tokens"):
        compute_denominators({"policy": MASK}, sequence_ids=SEQUENCE_IDS)
