"""The loss of distillation against plain loops, and its expected gradient against that of the KL."""

from __future__ import annotations

import math

import pytest
import torch
from sequence_rows import ADVANTAGES, CONFIGS, LOGPROBS, MASK, OLD, compute

from rlinf.algorithms.aggregation import compute_loss_denominators
from rlinf.algorithms.registry import policy_loss
from rlinf.algorithms.types import finalize_metrics
from rlinf.config.schema.algorithm import DistillationLossConfig


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONFIGS, "opd", DistillationLossConfig())


@pytest.mark.parametrize("packed", [True, False])
def test_ratios_weight_advantages_without_a_bound(packed: bool) -> None:
    loss, metrics = compute("opd", packed=packed)
    terms = [
        -math.exp(new - old) * advantage
        for new, old, advantage, counts in zip(LOGPROBS, OLD, ADVANTAGES, MASK, strict=True)
        if counts
    ]
    assert loss.item() == pytest.approx(sum(terms) / 8, rel=1e-12)
    assert finalize_metrics(metrics)["actor_reverse_kl"] == pytest.approx(-sum(ADVANTAGES[:8]) / 8)


def test_the_expected_gradient_is_that_of_the_reverse_kl() -> None:
    logits = torch.tensor([0.3, -0.4, 1.1, 0.0], dtype=torch.float64, requires_grad=True)
    teacher = torch.tensor([1.0, 0.5, -0.2, 0.1], dtype=torch.float64).log_softmax(-1)
    student = logits.log_softmax(-1)
    (exact,) = torch.autograd.grad((student.exp() * (student - teacher)).sum(), logits)
    # Every token of the vocabulary once, weighted with its probability: an expectation without sampling.
    expected = torch.zeros_like(exact)
    for token in range(4):
        logprob = logits.log_softmax(-1)[token].view(1)
        mask = torch.ones(1, dtype=torch.bool)
        loss, _ = policy_loss(
            "opd",
            logprobs=logprob,
            old_logprobs=logprob.detach(),
            advantages=teacher[token].view(1) - logprob.detach(),
            loss_mask=mask,
            denominators=compute_loss_denominators(
                policy_mask=mask, max_tokens=1, sequence_ids=torch.zeros(1, dtype=torch.int64)
            ),
            sequence_ids=torch.zeros(1, dtype=torch.int64),
        )
        (gradient,) = torch.autograd.grad(loss, logits)
        expected += student[token].exp().detach() * gradient
    assert torch.allclose(expected, exact, atol=1e-12)
