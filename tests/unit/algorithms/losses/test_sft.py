"""The negative log-likelihood of given answers, against numbers computed by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from rlinf.algorithms.aggregation import compute_loss_denominators
from rlinf.algorithms.registry import policy_loss
from rlinf.algorithms.types import finalize_metrics
from rlinf.errors import AlgorithmError

if TYPE_CHECKING:
    from rlinf.algorithms.types import Metrics


LOGPROBS = [[-0.5, -1.0, -2.0], [-3.0, -4.0, float("nan")]]
MASK = [[True, False, True], [True, True, False]]
TOKENS, SEQUENCES, LONGEST = 4, 2, 5


def compute(
    loss_agg_func: str = "token-mean", *, data_parallel_size: int = 1, mask: list[list[bool]] = MASK
) -> tuple[float, Metrics, torch.Tensor | None]:
    logprobs = torch.tensor(LOGPROBS, requires_grad=True)
    mask = torch.tensor(mask)
    denominators = compute_loss_denominators(
        policy_mask=torch.tensor(MASK), max_tokens=LONGEST, data_parallel_size=data_parallel_size
    )
    loss, metrics = policy_loss(
        "sft",
        logprobs=logprobs,
        entropy=torch.full_like(logprobs, 0.25).detach(),
        loss_mask=mask,
        denominators=denominators,
        loss_agg_func=loss_agg_func,
    )
    loss.backward()
    return loss.item(), metrics, logprobs.grad


@pytest.mark.parametrize(
    ("loss_agg_func", "expected"),
    [
        ("token-mean", (0.5 + 2.0 + 3.0 + 4.0) / TOKENS),
        ("seq-mean-token-sum", (2.5 + 7.0) / SEQUENCES),
        ("seq-mean-token-sum-norm", (2.5 + 7.0) / SEQUENCES / LONGEST),
        ("seq-mean-token-mean", (2.5 / 2 + 7.0 / 2) / SEQUENCES),
    ],
)
def test_golden_values(loss_agg_func: str, expected: float) -> None:
    loss, metrics, _ = compute(loss_agg_func)
    found = finalize_metrics(metrics)
    assert loss == pytest.approx(expected)
    assert found == pytest.approx({"loss": expected, "token_loss": 9.5 / TOKENS, "entropy": 0.25})


def test_the_gradient_is_that_of_the_learned_tokens_alone() -> None:
    _, _, gradient = compute()
    assert gradient.tolist() == [[-0.25, 0.0, -0.25], [-0.25, -0.25, 0.0]]


def test_denominators_are_those_of_the_update_batch() -> None:
    part = [[True, False, False], [False, False, False]]
    loss, metrics, _ = compute(mask=part)
    assert loss == pytest.approx(0.5 / TOKENS)
    assert metrics["loss"].tolist() == pytest.approx([0.5 / TOKENS, 1 / TOKENS])
    assert compute(data_parallel_size=2)[0] == pytest.approx(2 * 9.5 / TOKENS)


def test_a_micro_batch_without_learned_tokens_still_has_a_gradient_and_all_metrics() -> None:
    loss, metrics, gradient = compute(mask=[[False] * 3] * 2)
    assert loss == 0
    assert set(metrics) == set(compute()[1])
    assert gradient.abs().sum() == 0


def test_shapes_must_agree() -> None:
    denominators = compute_loss_denominators(policy_mask=torch.ones(1, 3, dtype=torch.bool))
    with pytest.raises(AlgorithmError, match="shapes must be equal"):
        policy_loss(
            "sft",
            logprobs=torch.zeros(1, 3),
            entropy=torch.zeros(1, 3),
            loss_mask=torch.ones(1, 2, dtype=torch.bool),
            denominators=denominators,
            loss_agg_func="token-mean",
        )
