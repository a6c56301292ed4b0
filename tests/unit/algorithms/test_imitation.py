"""Expected numbers are computed by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from rlinf.algorithms.imitation import imitation_loss

if TYPE_CHECKING:
    from rlinf.algorithms.types import Metrics


EXECUTED = torch.tensor([[True, True], [True, False]])
LOGPROBS = torch.tensor([[[-1.0, -2.0], [-0.5, -0.5]], [[-4.0, 0.0], [float("nan"), 7.0]]])
GREEDY = torch.tensor([[[0.0, 1.0], [2.0, 2.0]], [[1.0, 1.0], [float("inf"), 0.0]]])
ACTIONS = torch.tensor([[[1.0, 1.0], [2.0, 0.0]], [[4.0, 1.0], [0.0, 0.0]]])


def loss(kind: str, denominator: int = 3) -> tuple[torch.Tensor, Metrics]:
    return imitation_loss(
        kind, logprobs=LOGPROBS, greedy=GREEDY, actions=ACTIONS, executed=EXECUTED, denominator=denominator
    )


def test_likelihood_of_the_executed_actions_alone() -> None:
    value, metrics = loss("nll")
    assert value.item() == pytest.approx((3.0 + 1.0 + 4.0) / 3)
    assert metrics["imitation_loss"].tolist() == pytest.approx([8.0, 3.0])


def test_squared_distance_of_the_executed_actions_alone() -> None:
    value, metrics = loss("mse")
    assert value.item() == pytest.approx((0.5 + 2.0 + 4.5) / 3)
    assert metrics["imitation_loss"].tolist() == pytest.approx([7.0, 3.0])


def test_the_mean_is_over_the_whole_update_batch() -> None:
    assert loss("nll", denominator=12)[0].item() == pytest.approx(8.0 / 12)


def test_what_was_not_executed_gives_no_gradient() -> None:
    logprobs = torch.zeros(2, 2, 1, requires_grad=True)
    total, _ = imitation_loss(
        "nll", logprobs=logprobs, greedy=None, actions=torch.zeros(2, 2, 1), executed=EXECUTED, denominator=3
    )
    total.backward()
    assert logprobs.grad.flatten().tolist() == pytest.approx([-1 / 3, -1 / 3, -1 / 3, 0.0])
