"""Normalisation over masks and ranks."""

from __future__ import annotations

import pytest
import torch

from rlinf.algorithms.statistics import GroupStatistics, normalize_masked


class TwoRanks:
    """The reductions of rank 0 when the other rank holds ``other``, recorded so that calls can be counted."""

    def __init__(self, other: torch.Tensor, mask: torch.Tensor, mean: float) -> None:
        self.replies = [
            torch.stack((other[mask].sum(), mask.sum().to(other))),
            (other[mask] - mean).square().sum(),
        ]

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor + self.replies.pop(0)


def test_statistics_are_those_of_all_ranks_together() -> None:
    mine, other = torch.tensor([1.0, 2.0, 50.0]), torch.tensor([6.0, 7.0])
    mask = torch.tensor([True, True, False])
    reduce = TwoRanks(other, torch.tensor([True, True]), mean=4.0)
    result = normalize_masked(mine, mask, reduce)
    joined = torch.tensor([1.0, 2.0, 6.0, 7.0])
    expected = (joined - joined.mean()) / joined.std()
    assert result.tolist() == pytest.approx([*expected[:2].tolist(), 0.0], rel=1e-5)
    assert not reduce.replies


def test_a_rank_without_valid_steps_takes_part_and_stays_finite() -> None:
    reduce = TwoRanks(torch.tensor([1.0, 3.0]), torch.tensor([True, True]), mean=2.0)
    result = normalize_masked(torch.tensor([float("nan")]), torch.tensor([False]), reduce)
    assert result.tolist() == [0.0]
    assert not reduce.replies


@pytest.mark.parametrize("values", [[0.1] * 7, [5.0], [0.0, 0.0], [100.1] * 5])
def test_equal_values_become_zero(values: list[float]) -> None:
    tensor = torch.tensor(values)
    assert normalize_masked(tensor, torch.ones_like(tensor).bool()).tolist() == [0.0] * len(values)


def test_nothing_valid_is_all_zero() -> None:
    assert normalize_masked(torch.ones(3), torch.zeros(3).bool()).tolist() == [0.0] * 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_scores_of_a_group_are_exactly_centred(dtype: torch.dtype) -> None:
    for size in range(1, 12):
        for score in (0.1, 0.7, 1 / 3, 100.1, -1e6 / 7):
            scores = torch.tensor([score] * size + [0.25, 0.75], dtype=dtype)
            groups = torch.tensor([0] * size + [1, 1])
            found = GroupStatistics(groups, torch.ones_like(groups).bool()).centered(scores)
            assert found.tolist() == [0.0] * size + [-0.25, 0.25]
