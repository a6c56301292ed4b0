"""CISPO against plain loops over Python numbers."""

import math

import pytest
import torch
from sequence_rows import ADVANTAGES, LOGPROBS, MASK, OLD, clip, compute

from rlinf.algorithms.types import finalize_metrics


def cispo_by_hand() -> tuple[float, list[float]]:
    """Mean over tokens of -clip(r) A log p (arXiv 2506.13585, Eq. 4)."""
    weights = [clip(math.exp(p - old), 0.7, 1.4) for p, old in zip(LOGPROBS, OLD, strict=True)]
    terms = [-w * a * p for w, a, p, m in zip(weights, ADVANTAGES, LOGPROBS, MASK, strict=True) if m]
    return sum(terms) / 8, weights


@pytest.mark.parametrize("packed", [True, False])
def test_cispo(packed: bool) -> None:
    loss, metrics = compute("cispo", packed=packed)
    expected, weights = cispo_by_hand()
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    bounded = [w in {0.7, 1.4} for w, m in zip(weights, MASK, strict=True) if m]
    assert 0 < sum(bounded) < 8
    assert finalize_metrics(metrics)["actor_clip_fraction"] == pytest.approx(sum(bounded) / 8)


def test_cispo_keeps_the_gradient_of_bounded_tokens_at_the_bound() -> None:
    logprobs = torch.tensor(LOGPROBS, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(compute("cispo", logprobs)[0], logprobs)
    _, weights = cispo_by_hand()
    expected = [-w * a / 8 if m else 0.0 for w, a, m in zip(weights, ADVANTAGES, MASK, strict=True)]
    assert gradient.tolist() == pytest.approx(expected)
