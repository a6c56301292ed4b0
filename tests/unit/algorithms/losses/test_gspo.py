"""GSPO against plain loops over Python numbers, and against finite differences."""

import math
from typing import Any

import pytest
import torch
from sequence_rows import ADVANTAGES, LENGTHS, LOGPROBS, MASK, OLD, clip, compute

from rlinf.algorithms.types import finalize_metrics


def gspo_by_hand() -> tuple[float, list[Any]]:
    """Mean over sequences of -min(s A, clip(s) A), s the geometric mean of the ratios (arXiv 2507.18071, Eq. 5-7)."""
    losses, ratios, start = [], [], 0
    for length in LENGTHS:
        valid = [i for i in range(start, start + length) if MASK[i]]
        s = math.exp(sum(LOGPROBS[i] - OLD[i] for i in valid) / len(valid))
        advantage = ADVANTAGES[start]
        losses.append(-min(s * advantage, clip(s, 0.9, 1.05) * advantage))
        ratios += [s] * len(valid)
        start += length
    return sum(losses) / 3, ratios


@pytest.mark.parametrize("packed", [True, False])
def test_gspo(packed: bool) -> None:
    loss, metrics = compute("gspo", packed=packed)
    expected, ratios = gspo_by_hand()
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    numbers = finalize_metrics(metrics)
    assert numbers["actor_ratio"] == pytest.approx(sum(ratios) / 8)
    # Sequence 2 leaves the bounds on the side that its negative advantage pushes to; sequence 3 above, with a positive.
    clipped = sum(r < 0.9 for r in ratios[3:5]) + sum(r > 1.05 for r in ratios[:3] + ratios[5:])
    assert clipped > 0
    assert numbers["actor_clip_fraction"] == pytest.approx(clipped / 8)


def test_gspo_has_the_gradient_of_the_sequence_ratio() -> None:
    # Bounds so wide that nothing is clipped: the loss is mean_n(-s_n A_n), which autograd can differentiate as it is.
    wide = {"clip_ratio_low": 0.9, "clip_ratio_high": 9.0}
    logprobs = torch.tensor(LOGPROBS, dtype=torch.float64, requires_grad=True)
    (actual,) = torch.autograd.grad(compute("gspo", logprobs, **wide)[0], logprobs)
    difference = (logprobs - torch.tensor(OLD, dtype=torch.float64)).split(LENGTHS)
    masks, advantages = torch.tensor(MASK).split(LENGTHS), torch.tensor(ADVANTAGES).split(LENGTHS)
    parts = [-(d[m].mean().exp() * a[0]) for d, m, a in zip(difference, masks, advantages, strict=True)]
    (expected,) = torch.autograd.grad(sum(parts) / 3, logprobs)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)
    # A ratio per token would have another gradient.
    (other,) = torch.autograd.grad(compute("actor", logprobs, **wide)[0], logprobs)
    assert not torch.allclose(other, expected, rtol=1e-2)
