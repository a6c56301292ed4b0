"""The value loss against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch

from rlinf.algorithms.aggregation import compute_loss_denominators
from rlinf.algorithms.losses.actor_critic import value_loss
from rlinf.algorithms.losses.inputs import LossInputs
from rlinf.algorithms.registry import policy_loss
from rlinf.algorithms.types import finalize_metrics, masked_metrics
from rlinf.config.schema.algorithm import ValueLossConfig
from rlinf.errors import AlgorithmError

VALUES = torch.tensor([[1.0], [4.0], [0.1]])
PREV = torch.tensor([[0.0], [0.0], [0.0]])
RETURNS = torch.tensor([[3.0], [3.0], [0.1]])
ALL = torch.ones(3, 1, dtype=torch.bool)


def compute(value_clip: float | None = None, huber_delta: float | None = None) -> tuple[list[float], dict[str, float]]:
    inputs = LossInputs(
        loss_mask=ALL,
        denominators=compute_loss_denominators(policy_mask=ALL),
        values=VALUES,
        prev_values=PREV,
        returns=RETURNS,
    )
    output = value_loss(inputs, ValueLossConfig(value_clip=value_clip, huber_delta=huber_delta))
    return output.per_entry.flatten().tolist(), finalize_metrics(masked_metrics(ALL, **output.metrics))


def test_half_the_squared_error() -> None:
    loss, numbers = compute()
    assert loss == pytest.approx([2.0, 0.5, 0.0])
    assert numbers["critic_value_loss"] == pytest.approx(2.5 / 3)
    assert numbers["critic_value_clip_fraction"] == 0.0


def test_huber_is_linear_beyond_delta() -> None:
    loss, _ = compute(huber_delta=1.5)
    assert loss == pytest.approx([1.5 * (2.0 - 0.75), 0.5, 0.0])


def test_clip_fraction_counts_changes_before_clamping() -> None:
    loss, numbers = compute(value_clip=0.5)
    # Clipped predictions 0.5, 0.5, 0.1: the larger loss counts.
    assert loss == pytest.approx([0.5 * 2.5**2, 0.5 * 2.5**2, 0.0])
    assert numbers["critic_value_clip_fraction"] == pytest.approx(2 / 3)


def test_explained_variance() -> None:
    _, numbers = compute()
    errors = RETURNS - VALUES
    expected = 1 - errors.var(correction=0) / RETURNS.var(correction=0)
    assert numbers["critic_explained_variance"] == pytest.approx(expected.item(), rel=1e-5)
    assert "critic_error_square" not in numbers


def test_total_is_actor_plus_weighted_critic_with_separate_denominators() -> None:
    arguments = {
        "logprobs": torch.zeros(3, 2),
        "old_logprobs": torch.zeros(3, 2),
        "advantages": torch.ones(3, 2),
        "loss_mask": torch.tensor([[1, 1], [1, 0], [0, 0]]).bool(),
        "values": VALUES,
        "prev_values": PREV,
        "returns": RETURNS,
        "value_mask": torch.tensor([[1], [1], [0]]).bool(),
        "clip_ratio_low": 0.2,
        "clip_ratio_high": 0.2,
        "clip_ratio_c": None,
        "loss_agg_func": "token-mean",
        "entropy_bonus": 0.0,
        "kl_beta": 0.0,
        "kl_penalty": "k3",
        "value_loss_coef": 0.5,
        "value_clip": None,
        "huber_delta": None,
    }
    denominators = compute_loss_denominators(
        policy_mask=arguments["loss_mask"],
        value_mask=arguments["value_mask"],  # type: ignore[arg-type]
    )
    loss, metrics = policy_loss("actor_critic", denominators=denominators, **arguments)
    assert loss.item() == pytest.approx(-1.0 + 0.5 * (2.0 + 0.5) / 2)
    assert finalize_metrics(metrics)["total_loss"] == pytest.approx(loss.item())
    assert finalize_metrics(metrics)["actor_loss"] == pytest.approx(-1.0)
    with pytest.raises(AlgorithmError, match="value head"):
        policy_loss("actor_critic", denominators=denominators, **{**arguments, "values": None})


def test_half_precision_outputs_are_compared_in_single_precision() -> None:
    # 1000 and 1001 are one number in bfloat16.
    mask = torch.ones(1, 1, dtype=torch.bool)
    inputs = LossInputs(
        loss_mask=mask,
        denominators=compute_loss_denominators(policy_mask=mask),
        values=torch.full((1, 1), 1000.0, dtype=torch.bfloat16),
        prev_values=torch.full((1, 1), 1000.0),
        returns=torch.full((1, 1), 1001.0),
    )
    loss = value_loss(inputs, ValueLossConfig()).per_entry
    assert loss.dtype == torch.float32
    assert loss.item() == 0.5
