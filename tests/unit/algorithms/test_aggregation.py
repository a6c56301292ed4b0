"""Aggregation with global denominators."""

from __future__ import annotations

import pytest
import torch

from rlinf.algorithms.aggregation import (
    LOSS_AGG_FUNCS,
    Denominators,
    aggregate_loss,
    compute_denominators,
    compute_loss_denominators,
)
from rlinf.errors import AlgorithmError

LOSS = torch.tensor([[1.0, 2.0, 3.0, 6.0], [4.0, 99.0, 99.0, 99.0], [99.0] * 4])
MASK = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]]).bool()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("token-mean", (1 + 2 + 3 + 6 + 4) / 5),
        ("seq-mean-token-sum", (12 + 4) / 2),
        ("seq-mean-token-sum-norm", (12 + 4) / 2 / 4),
        ("seq-mean-token-mean", (12 / 4 + 4 / 1) / 2),
    ],
)
def test_golden_numbers(name: str, expected: float) -> None:
    denominators = compute_denominators({"x": MASK})["x"]
    assert denominators == Denominators(num_valid_tokens=5, num_sequences=2, max_tokens=4)
    assert aggregate_loss(LOSS, MASK, loss_agg_func=name, denominators=denominators).item() == pytest.approx(expected)


@pytest.mark.parametrize("name", LOSS_AGG_FUNCS)
@pytest.mark.parametrize("shape", [(6,), (6, 3), (6, 3, 2)])
def test_micro_batches_add_up_to_the_whole(name: str, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    loss = torch.randn(shape, generator=generator, dtype=torch.float64)
    mask = torch.rand(shape, generator=generator) < 0.5
    denominators = compute_denominators({"x": mask})["x"]
    whole = aggregate_loss(loss, mask, loss_agg_func=name, denominators=denominators)
    for size in range(1, 7):
        parts = [
            aggregate_loss(loss[i : i + size], mask[i : i + size], loss_agg_func=name, denominators=denominators)
            for i in range(0, 6, size)
        ]
        assert sum(parts).item() == pytest.approx(whole.item(), rel=1e-9)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", LOSS_AGG_FUNCS)
@pytest.mark.parametrize("num_rows", [0, 2])
def test_an_all_zero_mask_still_carries_a_gradient(name: str, num_rows: int) -> None:
    weight = torch.ones(3, requires_grad=True)
    loss = weight.expand(num_rows, 3) * float("inf")
    mask = torch.zeros(num_rows, 3, dtype=torch.bool)
    result = aggregate_loss(loss, mask, loss_agg_func=name, denominators=compute_denominators({"x": mask})["x"])
    assert result.item() == 0.0
    assert result.requires_grad


def test_counts_are_reduced_over_ranks_in_one_call() -> None:
    calls = []

    def all_reduce(tensor: torch.Tensor) -> torch.Tensor:
        calls.append(tensor)
        return tensor * 2

    result = compute_loss_denominators(
        policy_mask=MASK, value_mask=MASK.any(1, keepdim=True), data_parallel_size=2, all_reduce=all_reduce
    )
    assert len(calls) == 1
    assert result.policy == result.entropy == Denominators(10, 4, 4, 2)
    assert result.value == Denominators(4, 4, 1, 2)


def test_wrong_name_and_shapes_are_refused() -> None:
    denominators = Denominators(1, 1, 1)
    with pytest.raises(AlgorithmError, match="token-mean"):
        aggregate_loss(LOSS, MASK, loss_agg_func="mean", denominators=denominators)
    with pytest.raises(AlgorithmError, match="shapes"):
        aggregate_loss(torch.zeros(3), torch.ones(3, 1).bool(), loss_agg_func="token-mean", denominators=denominators)
