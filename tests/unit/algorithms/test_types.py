"""Shape checks, masked sums and metrics, on numbers worked out by hand."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from rlinf.algorithms.types import (
    Columns,
    add_metrics,
    at_least_float32,
    finalize_metrics,
    masked_metric,
    masked_metrics,
    masked_sum,
    metric_pair,
    require_same_shape,
)
from rlinf.errors import AlgorithmError

MASK = torch.tensor([[True, True], [True, False]])


@dataclass(frozen=True, slots=True)
class Pair(Columns):
    first: torch.Tensor | None = None
    second: torch.Tensor | None = None


def test_required_tensors_come_in_their_order_and_missing_ones_are_named() -> None:
    one, two = torch.ones(1), torch.ones(2)
    assert [tensor.numel() for tensor in Pair(one, two).require("second", "first")] == [2, 1]
    with pytest.raises(AlgorithmError, match="Pair without 'first', 'second'"):
        Pair().require("first", "second")


def test_nothing_broadcasts() -> None:
    require_same_shape("loss", a=torch.ones(2), b=None, c=torch.ones(2))
    with pytest.raises(AlgorithmError, match=r"loss: shapes must be equal, received a \[2\], c \[2, 1\]"):
        require_same_shape("loss", a=torch.ones(2), b=None, c=torch.ones(2, 1))


@pytest.mark.parametrize(
    ("given", "expected"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)],
)
def test_half_precision_is_raised_to_single(given: torch.dtype, expected: torch.dtype) -> None:
    assert at_least_float32(torch.ones(1, dtype=given)).dtype == expected


def test_masked_entries_may_be_anything() -> None:
    values = torch.tensor([[1.0, 2.0], [4.0, torch.nan]], requires_grad=True)
    total = masked_sum(values, MASK)
    assert total.item() == 7.0
    (gradient,) = torch.autograd.grad(total, values)
    assert gradient.tolist() == [[1.0, 1.0], [1.0, 0.0]]
    assert masked_metric(values, MASK).tolist() == [7.0, 3.0]
    pairs = masked_metrics(MASK, a=values, b=-values)
    assert {name: pair.tolist() for name, pair in pairs.items()} == {"a": [7.0, 3.0], "b": [-7.0, 3.0]}
    assert not pairs["a"].requires_grad


def test_an_empty_mask_sums_to_0_with_a_gradient_of_zeros() -> None:
    values = torch.ones(2, requires_grad=True)
    total = masked_sum(values, torch.zeros(2, dtype=torch.bool))
    (gradient,) = torch.autograd.grad(total, values)
    assert (total.item(), gradient.tolist()) == (0.0, [0.0, 0.0])


def test_metrics_are_means_and_those_without_an_entry_are_left_out() -> None:
    counted = metric_pair(torch.tensor(6.0), torch.tensor(4))
    empty = metric_pair(torch.tensor(0.0), torch.tensor(0))
    assert finalize_metrics({"a": counted, "b": empty}) == {"a": 1.5}


def test_explained_variance_is_of_returns_and_not_of_a_constant() -> None:
    parts = {"critic_return": 2.0, "critic_return_square": 8.0, "critic_error": 1.0, "critic_error_square": 2.0}
    metrics = {name: torch.tensor([value, 1.0]) for name, value in parts.items()}
    assert finalize_metrics(metrics) == {"critic_return": 2.0, "critic_explained_variance": 0.75}
    metrics["critic_return_square"] = torch.tensor([4.0, 1.0])
    assert finalize_metrics(metrics) == {"critic_return": 2.0}


def test_the_effective_sample_size_is_that_of_the_weights() -> None:
    metrics = {"mismatch_weight": torch.tensor([3.0, 2.0]), "mismatch_weight_square": torch.tensor([5.0, 2.0])}
    assert finalize_metrics(metrics) == {"mismatch_ess": pytest.approx(0.9)}


def test_pairs_are_added_up_but_of_the_largest_one_is_kept() -> None:
    sums, names = {}, ("mismatch_max_probability_difference", "actor_ratio_max")
    for total, count, largest in ((1.0, 2.0, 0.3), (5.0, 1.0, 0.2)):
        pairs = {"loss": torch.tensor([total, count])}
        add_metrics(sums, pairs | {name: torch.tensor([largest, 1.0]) for name in names})
    add_metrics(sums, {"other": torch.tensor([3.0, 1.0])})
    largest = pytest.approx([0.3, 1.0])
    expected = {"loss": [6.0, 3.0], "other": [3.0, 1.0], **dict.fromkeys(names, largest)}
    assert {name: pair.tolist() for name, pair in sums.items()} == expected
