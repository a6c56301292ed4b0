"""Targets of critics, errors against them, and one value from an ensemble, on numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch

from rlinf.algorithms.q_learning import aggregate_q, bellman_targets, metric_sums, squared_q_errors


@pytest.mark.parametrize(("how", "expected"), [("min", [1.0, -2.0]), ("mean", [2.0, 1.0]), ("q1", [3.0, -2.0])])
def test_an_ensemble_has_one_value_for_each_transition(how: str, expected: list[float]) -> None:
    assert aggregate_q(torch.tensor([[3.0, 1.0], [-2.0, 4.0]]), how).tolist() == expected


def test_a_chunk_is_discounted_by_its_length_and_nothing_follows_a_termination() -> None:
    next_values = torch.tensor([8.0, 8.0, torch.nan], requires_grad=True)
    targets = bellman_targets(
        next_values,
        rewards=torch.tensor([1.0, 1.0, 1.0]),
        terminated=torch.tensor([False, False, True]),
        lengths=torch.tensor([1, 3, 3]),
        gamma=0.5,
    )
    assert targets.tolist() == [5.0, 2.0, 1.0]
    assert not targets.requires_grad


def test_errors_are_averaged_over_critics_and_summed_over_transitions() -> None:
    q = torch.tensor([[1.0, 3.0], [0.0, 2.0]], requires_grad=True)
    loss, metrics = squared_q_errors(q, torch.tensor([1.0, 4.0]))
    assert loss.item() == 2.0 + 10.0
    assert {name: pair.tolist() for name, pair in metrics.items()} == {
        "critic_loss": [12.0, 2.0],
        "q_value": [3.0, 2.0],
        "q_target": [5.0, 2.0],
    }
    (gradient,) = torch.autograd.grad(loss, q)
    assert gradient.tolist() == [[0.0, 2.0], [-4.0, -2.0]]


def test_metrics_are_detached_sums_with_their_counts() -> None:
    pairs = metric_sums(a=torch.tensor([1.0, 2.0, 4.0], requires_grad=True), b=torch.zeros(3))
    assert {name: pair.tolist() for name, pair in pairs.items()} == {"a": [7.0, 3.0], "b": [0.0, 3.0]}
    assert not pairs["a"].requires_grad
