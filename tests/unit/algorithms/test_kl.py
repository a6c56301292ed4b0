"""Divergence estimators: hand-computed values, direction and sign."""

from __future__ import annotations

import math

import pytest
import torch

from rlinf.algorithms.kl import estimate_kl
from rlinf.errors import AlgorithmError


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("k1", [math.log(2), -math.log(2)]),
        ("kl", [math.log(2), -math.log(2)]),
        ("abs", [math.log(2), math.log(2)]),
        ("k2", [math.log(2) ** 2 / 2] * 2),
        ("k3", [0.5 - 1 + math.log(2), 2 - 1 - math.log(2)]),
        ("low_var_kl", [0.5 - 1 + math.log(2), 2 - 1 - math.log(2)]),
        ("k3_unbiased", [0.5 - 1 + math.log(2), 2 - 1 - math.log(2)]),
    ],
)
def test_golden_numbers(kind: str, expected: list[float]) -> None:
    current, reference = torch.tensor([0.5, 0.25]).log(), torch.tensor([0.25, 0.5]).log()
    assert estimate_kl(current, reference, kind).tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_direction_is_current_against_reference(kind: str) -> None:
    p = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
    q = torch.tensor([0.1, 0.3, 0.6], dtype=torch.float64)
    forward = (p * (p / q).log()).sum().item()
    backward = (q * (q / p).log()).sum().item()
    expectation = (p * estimate_kl(p.log(), q.log(), kind)).sum().item()
    assert expectation == pytest.approx(forward, rel=1e-9)
    assert abs(expectation - backward) > 0.01


def test_k3_is_never_negative_and_stays_finite() -> None:
    current, reference = torch.tensor([-500.0, 0.0, -1.0]), torch.tensor([0.0, -500.0, -1.0])
    values = estimate_kl(current, reference, "k3")
    assert torch.isfinite(values).all()
    assert (values >= 0).all()


def test_gradient_flows_into_the_current_policy_only() -> None:
    current, reference = torch.zeros(2, requires_grad=True), torch.ones(2, requires_grad=True)
    estimate_kl(current, reference, "k2").sum().backward()
    assert current.grad is not None
    assert current.grad.tolist() == [-1.0, -1.0]
    assert reference.grad is None


@pytest.mark.parametrize(("kind", "is_exact"), [("k3_unbiased", True), ("k2", False), ("k3", False)])
def test_the_expected_gradient_of_samples_of_an_older_policy(kind: str, is_exact: bool) -> None:
    weights = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([0.1, 0.3, 0.6], dtype=torch.float64).log()
    acted = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    logprobs = weights.log_softmax(-1)
    (exact,) = torch.autograd.grad((logprobs.exp() * (logprobs - reference)).sum(), weights, retain_graph=True)
    estimate = (acted * estimate_kl(logprobs, reference, kind, acted.log())).sum()
    (gradient,) = torch.autograd.grad(estimate, weights)
    assert torch.allclose(gradient, exact, rtol=1e-9) == is_exact


def test_without_an_older_policy_the_current_one_acted_and_its_weight_has_a_gradient() -> None:
    current = torch.tensor([-1.0, -0.5], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([-0.7, -0.9], dtype=torch.float64)
    estimate_kl(current, reference, "k3_unbiased").sum().backward()
    assert current.grad is not None
    # (k3 + dk3/dlog p) p / p = log p - log q
    torch.testing.assert_close(current.grad, (current - reference).detach())


def test_unknown_kind_and_unequal_shapes_are_refused() -> None:
    with pytest.raises(AlgorithmError, match="k4"):
        estimate_kl(torch.zeros(1), torch.zeros(1), "k4")
    with pytest.raises(AlgorithmError, match="shapes"):
        estimate_kl(torch.zeros(2), torch.zeros(2, 1), "k1")
