"""The clipped policy objective against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlinf.algorithms.aggregation import compute_loss_denominators
from rlinf.algorithms.registry import policy_loss
from rlinf.algorithms.types import Metrics, finalize_metrics
from rlinf.errors import AlgorithmError

DEFAULTS: dict[str, Any] = {
    "clip_ratio_low": 0.2,
    "clip_ratio_high": 0.3,
    "clip_ratio_c": None,
    "loss_agg_func": "token-mean",
    "entropy_bonus": 0.0,
    "kl_beta": 0.0,
    "kl_penalty": "k3",
}
RATIOS = torch.tensor([[1.5], [0.5], [1.5], [0.5], [1.1]])
ADVANTAGES = torch.tensor([[1.0], [1.0], [-1.0], [-1.0], [2.0]])


def compute(ratios: torch.Tensor = RATIOS, **over: Any) -> tuple[torch.Tensor, Metrics]:
    mask = over.pop("loss_mask", torch.ones_like(ratios, dtype=torch.bool))
    arguments = {
        **DEFAULTS,
        "logprobs": ratios.log(),
        "old_logprobs": torch.zeros_like(ratios),
        "advantages": ADVANTAGES,
        "loss_mask": mask,
        "denominators": compute_loss_denominators(policy_mask=mask, entropy_mask=over.get("entropy_mask")),
        **over,
    }
    return policy_loss("actor", **arguments)


def test_clipping_is_pessimistic_on_both_sides() -> None:
    loss, metrics = compute()
    # -min(r A, clip(r) A): -1.3, -0.5, 1.5, 0.8, -2.2
    assert loss.item() == pytest.approx((-1.3 - 0.5 + 1.5 + 0.8 - 2.2) / 5)
    numbers = finalize_metrics(metrics)
    assert numbers["actor_loss"] == pytest.approx(loss.item())
    assert numbers["total_loss"] == pytest.approx(loss.item())
    assert numbers["actor_ratio"] == pytest.approx(5.1 / 5)
    assert numbers["actor_ratio_max"] == pytest.approx(float(RATIOS.max()))
    assert numbers["actor_clip_fraction"] == pytest.approx(2 / 5)
    assert numbers["actor_dual_clip_fraction"] == 0.0
    log_ratios = RATIOS.log()
    assert numbers["actor_approx_kl"] == pytest.approx((RATIOS - 1 - log_ratios).mean().item(), rel=1e-5)


def test_dual_clip_bounds_the_loss_of_negative_advantages() -> None:
    loss, metrics = compute(
        ratios=torch.tensor([[5.0], [5.0], [2.0]]),
        advantages=torch.tensor([[-1.0], [1.0], [-1.0]]),
        clip_ratio_c=3.0,
    )
    assert loss.item() == pytest.approx((3.0 - 1.3 + 2.0) / 3)
    assert finalize_metrics(metrics)["actor_dual_clip_fraction"] == pytest.approx(1 / 3)


def test_masked_entries_have_no_say_whatever_they_hold() -> None:
    mask = torch.tensor([[True], [True], [True], [True], [False]])
    logprobs = RATIOS.log().clone()
    logprobs[4] = float("nan")
    logprobs.requires_grad_()
    advantages = ADVANTAGES.clone()
    advantages[4] = float("inf")
    loss, metrics = compute(
        loss_mask=mask, logprobs=logprobs, advantages=advantages, kl_beta=1.0, ref_logprobs=logprobs
    )
    loss.backward()
    assert loss.item() == pytest.approx((-1.3 - 0.5 + 1.5 + 0.8) / 4)
    assert logprobs.grad is not None
    # Clipped entries teach nothing; the reference equals the current policy.
    assert logprobs.grad.flatten().tolist() == pytest.approx([0.0, -0.5 / 4, 1.5 / 4, 0.0, 0.0])
    assert all(torch.isfinite(pair).all() for pair in metrics.values())


def test_ratios_far_outside_stay_finite() -> None:
    logprobs = torch.tensor([[500.0], [-500.0]], requires_grad=True)
    loss, metrics = compute(
        logprobs=logprobs,
        old_logprobs=torch.zeros(2, 1),
        advantages=torch.tensor([[-1.0], [1.0]]),
        ratios=torch.ones(2, 1),
    )
    loss.backward()
    assert torch.isfinite(loss)
    assert logprobs.grad is not None
    assert torch.isfinite(logprobs.grad).all()
    assert all(torch.isfinite(pair).all() for pair in metrics.values())


def test_entropy_and_divergence_enter_with_their_weights() -> None:
    plain, _ = compute()
    entropy = torch.tensor([[1.0], [2.0], [3.0], [4.0], [5.0]])
    with_entropy, metrics = compute(entropy=entropy, entropy_bonus=0.1)
    assert (plain - with_entropy).item() == pytest.approx(0.3)
    assert finalize_metrics(metrics)["actor_entropy"] == pytest.approx(3.0)
    reference = RATIOS.log() - 0.5
    with_kl, metrics = compute(ref_logprobs=reference, kl_beta=2.0, kl_penalty="k2")
    assert (with_kl - plain).item() == pytest.approx(2.0 * 0.125)
    assert finalize_metrics(metrics)["actor_kl_ref"] == pytest.approx(0.125)
    assert finalize_metrics(metrics)["actor_loss"] == pytest.approx(plain.item())


def test_entropy_at_another_level_has_its_own_denominator_and_does_not_broadcast() -> None:
    # [5, 3] entropies beside [5, 1] ratios, one of them masked: a mean of 14 entries.
    entropy = torch.arange(15.0).view(5, 3)
    entropy_mask = torch.ones(5, 3, dtype=torch.bool)
    entropy_mask[0, 0] = False
    plain, _ = compute()
    loss, _ = compute(entropy=entropy, entropy_mask=entropy_mask, entropy_bonus=1.0)
    assert (plain - loss).item() == pytest.approx(105 / 14)
    with pytest.raises(AlgorithmError, match="shapes"):
        compute(entropy=torch.zeros(5), entropy_bonus=1.0)


@pytest.mark.parametrize("name", ["old_logprobs", "advantages", "ref_logprobs"])
def test_nothing_is_broadcast(name: str) -> None:
    with pytest.raises(AlgorithmError, match=rf"shapes must be equal.*{name} \[5\]"):
        compute(**{name: torch.zeros(5)})


@pytest.mark.parametrize("num_rows", [0, 3])
def test_an_all_zero_mask_carries_a_gradient_and_the_same_metric_keys(num_rows: int) -> None:
    weight = torch.ones((), requires_grad=True)
    loss, metrics = compute(
        ratios=torch.ones(num_rows, 1),
        logprobs=weight * torch.zeros(num_rows, 1),
        advantages=torch.ones(num_rows, 1),
        loss_mask=torch.zeros(num_rows, 1, dtype=torch.bool),
    )
    loss.backward()
    assert weight.grad is not None
    assert weight.grad.item() == 0.0
    _, usual = compute(entropy=torch.ones(5, 1), ref_logprobs=torch.zeros(5, 1))
    assert metrics.keys() == usual.keys()
    assert {pair.shape for pair in metrics.values()} == {torch.Size([2])}
    assert finalize_metrics(metrics) == {}


def test_a_weight_without_its_tensor_is_an_error() -> None:
    with pytest.raises(AlgorithmError, match="ref_logprobs"):
        compute(kl_beta=0.1)
    with pytest.raises(AlgorithmError, match="entropy"):
        compute(entropy_bonus=0.1)
