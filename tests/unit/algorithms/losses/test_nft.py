"""The loss of negative-aware fine-tuning against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
import torch

from rlinf.algorithms.aggregation import compute_loss_denominators
from rlinf.algorithms.registry import policy_loss
from rlinf.algorithms.types import finalize_metrics
from rlinf.errors import AlgorithmError

if TYPE_CHECKING:
    from rlinf.algorithms.types import Metrics


KEYS = {
    "nft_beta": 0.5,
    "adv_clip_max": 2.0,
    "loss_agg_func": "token-mean",
    "value_loss_coef": 0.5,
    "value_clip": None,
    "huber_delta": None,
    "nft_loss_form": "mse",
    "dpo_beta": 1.0,
    "nft_clip_ratio": None,
}


def compute(mask: tuple[bool, bool, bool] = (True, True, True), **over: torch.Tensor) -> tuple[torch.Tensor, Metrics]:
    mask = torch.tensor(mask).view(3, 1, 1)
    arguments = {
        "velocity": torch.tensor([3.0, 0.0, 1.0]).view(3, 1, 1),
        "old_velocity": torch.tensor([1.0, 0.0, 2.0]).view(3, 1, 1),
        "target": torch.tensor([2.0, 1.0, 0.0]).view(3, 1, 1),
        "saturated": torch.zeros_like(mask),
        "advantages": torch.tensor([1.0, -5.0, 0.0]).view(3, 1, 1),
        "loss_mask": mask,
        "denominators": compute_loss_denominators(policy_mask=mask, value_mask=over.get("value_mask")),
        **KEYS,
        **over,
    }
    return policy_loss("embodied_nft", **arguments)


def test_good_actions_draw_and_bad_ones_repel() -> None:
    loss, metrics = compute()
    # r: 3/4, 0 (clipped), 1/2. v+: 2, 0, 1.5; v-: 0, 0, 2.5. Squared errors +: 0, 1, 2.25; -: 4, 1, 6.25.
    assert loss.item() == pytest.approx((0.25 * 4 + 1 + 0.5 * 2.25 + 0.5 * 6.25) / 3)
    numbers = finalize_metrics(metrics)
    assert numbers["nft_loss"] == numbers["total_loss"] == pytest.approx(loss.item())
    assert numbers["nft_positive_loss"] == pytest.approx(3.25 / 3)
    assert numbers["nft_negative_loss"] == pytest.approx(11.25 / 3)
    assert numbers["nft_reward"] == pytest.approx(1.25 / 3)
    assert numbers["nft_velocity_change"] == pytest.approx((4 + 0 + 1) / 3)


def test_at_the_old_policy_the_gradient_is_the_advantage_times_the_error() -> None:
    old = torch.tensor([1.0, 0.0, 2.0], dtype=torch.float64).view(3, 1, 1)
    velocity = old.clone().requires_grad_()
    compute(velocity=velocity, old_velocity=old)[0].backward()
    # 2 beta (2 r - 1) (v_old - target), over three entries.
    expected = [0.5 * (1.0 - 2.0) / 3, -1.0 * (0.0 - 1.0) / 3, 0.0]
    assert velocity.grad.flatten().tolist() == pytest.approx(expected)


def test_the_minimum_lies_in_the_direction_of_improvement() -> None:
    # d/dv [r |v+ - u|^2 + (1-r) |v- - u|^2] = 0 at v = v_old + (2 r - 1) (u - v_old) / beta.
    velocity = torch.tensor([1.0 + 0.5 * 1.0 / 0.5, 0.0 - 1.0 * 1.0 / 0.5, 2.0]).view(3, 1, 1).requires_grad_()
    compute(velocity=velocity)[0].backward()
    assert velocity.grad.abs().max() < 1e-6


def test_actions_at_a_bound_draw_but_do_not_repel() -> None:
    good = torch.tensor([True, False, False]).view(3, 1, 1)
    assert compute(saturated=good)[0] == compute()[0]
    loss, metrics = compute(saturated=~good)
    # r is 1/2 instead of 0 for the second.
    assert loss.item() == pytest.approx((0.25 * 4 + 0.5 * 1 + 0.5 * 1 + 0.5 * 2.25 + 0.5 * 6.25) / 3)
    assert finalize_metrics(metrics)["nft_reward"] == pytest.approx(1.75 / 3)


def test_only_the_present_velocity_gets_a_gradient() -> None:
    tensors = {name: torch.randn(3, 1, 1, requires_grad=True) for name in ("velocity", "old_velocity", "target")}
    compute(**tensors)[0].backward()
    assert [name for name, tensor in tensors.items() if tensor.grad is not None] == ["velocity"]


def test_what_is_masked_may_be_anything() -> None:
    spoilt = torch.tensor([3.0, 0.0, torch.nan]).view(3, 1, 1)
    loss, metrics = compute(mask=(True, True, False), velocity=spoilt)
    assert loss.item() == pytest.approx((0.25 * 4 + 1) / 2)
    assert finalize_metrics(metrics)["nft_loss"] == pytest.approx(loss.item())


def test_values_are_learned_beside_the_velocity() -> None:
    values = {
        "values": torch.tensor([[1.0], [2.0], [0.0]]),
        "prev_values": torch.zeros(3, 1),
        "returns": torch.tensor([[0.0], [4.0], [9.0]]),
        "value_mask": torch.tensor([[True], [True], [False]]),
    }
    loss, metrics = compute(**values)
    assert loss.item() == pytest.approx(6.25 / 3 + 0.5 * (0.5 + 2.0) / 2)
    assert finalize_metrics(metrics)["critic_value_loss"] == pytest.approx(1.25)
    with pytest.raises(AlgorithmError, match="returns"):
        compute(values=values["values"])


def test_shapes_must_be_equal() -> None:
    with pytest.raises(AlgorithmError, match="shapes must be equal"):
        compute(advantages=torch.zeros(3, 1))


def softplus(number: float) -> float:
    return math.log1p(math.exp(number))


def test_the_logistic_form_depends_on_the_difference_of_errors() -> None:
    # 2 r - 1: 1/2, -1, 0. Errors + less errors -: -4, 0, -4.
    loss, metrics = compute(nft_loss_form="dpo", dpo_beta=3.0)
    assert loss.item() == pytest.approx((softplus(1.5 * 0.5 * -4) + softplus(0) + softplus(0)) / 3)
    assert finalize_metrics(metrics)["nft_loss"] == pytest.approx(loss.item())


def test_the_logistic_form_takes_actions_as_wholes() -> None:
    two = {
        "velocity": torch.tensor([[[3.0, 1.0]]]),
        "old_velocity": torch.tensor([[[1.0, 2.0]]]),
        "target": torch.tensor([[[2.0, 0.0]]]),
        "saturated": torch.zeros(1, 1, 2, dtype=torch.bool),
        "advantages": torch.full((1, 1, 2), 2.0),
    }
    mask = torch.ones(1, 1, 2, dtype=torch.bool)
    loss, _ = compute(
        **two, loss_mask=mask, denominators=compute_loss_denominators(policy_mask=mask, value_mask=None),
        nft_loss_form="dpo", dpo_beta=1.0,
    )  # fmt: skip
    assert loss.item() == pytest.approx(softplus(0.5 * (-4 + -4) / 2))


def test_beyond_the_bound_the_larger_loss_counts_and_has_no_gradient() -> None:
    # Changes: 2 of 1, 0 of 0, -1 of 2; at most half of the old ones. The first is shortened to 0.5: v+ 1.25, v- 0.75.
    velocity = torch.tensor([3.0, 0.0, 1.0]).view(3, 1, 1).requires_grad_()
    loss, metrics = compute(velocity=velocity, nft_clip_ratio=0.5)
    first = max(0.75 * 0 + 0.25 * 4, 0.75 * 0.75**2 + 0.25 * 1.25**2)
    assert first == 1.0, "the unbounded loss is the larger one here"
    assert loss.item() == pytest.approx((1.0 + 1 + 0.5 * 2.25 + 0.5 * 6.25) / 3)
    assert finalize_metrics(metrics)["nft_clip_fraction"] == pytest.approx(1 / 3)
    good = torch.tensor([2.0, 0.0, 0.0]).view(3, 1, 1)
    loss, _ = compute(velocity=velocity, nft_clip_ratio=0.5, advantages=good)
    # r = 1: unbounded 0, bounded 0.75 squared.
    assert loss.item() == pytest.approx((0.75**2 + 0.5 * 2 + 0.5 * 2.25 + 0.5 * 6.25) / 3)
    loss.backward()
    assert velocity.grad.flatten()[0] == 0
    assert velocity.grad.flatten()[2] != 0
