"""Generalised advantage estimation against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch

from rlinf.algorithms.registry import calculate_adv_and_returns
from rlinf.errors import AlgorithmError


def gae(rewards: list[float], values: list[float], **over: object) -> tuple[list[float], list[float]]:
    num_steps = len(rewards)
    arguments: dict[str, object] = {
        "rewards": torch.tensor(rewards).view(-1, 1),
        "values": torch.tensor(values).view(-1, 1),
        "dones": torch.zeros(num_steps, 1, dtype=torch.bool),
        "loss_mask": torch.ones(num_steps, 1, dtype=torch.bool),
        "gamma": 0.5,
        "gae_lambda": 0.5,
        "normalize_advantages": False,
    }
    for name, value in over.items():
        arguments[name] = torch.tensor(value).view(-1, 1) if isinstance(value, list) else value
    advantages, returns = calculate_adv_and_returns("gae", **arguments)
    return advantages.flatten().tolist(), returns.flatten().tolist()


def test_golden_numbers() -> None:
    # delta = r + 0.5 V' - V: (1 + 1 - 1, 2 + 2 - 2, 3 + 4 - 4) = (1, 2, 3); A = delta + 0.25 A'
    advantages, returns = gae([1.0, 2.0, 3.0], [1.0, 2.0, 4.0, 8.0])
    assert advantages == pytest.approx([1 + 0.25 * 2.75, 2 + 0.25 * 3, 3.0])
    assert returns == pytest.approx([2.6875, 4.75, 7.0])


def test_done_cuts_the_recursion() -> None:
    # Step 1 terminates: delta_1 = 2 - 2 = 0; nothing of step 2 comes back.
    advantages, _ = gae([1.0, 2.0, 3.0], [1.0, 2.0, 4.0, 8.0], dones=[False, True, False])
    assert advantages == pytest.approx([1.0, 0.0, 3.0])


def test_truncation_is_followed_by_the_value_of_the_last_state() -> None:
    # As if the reward were 2 + 0.5 * 6.
    advantages, _ = gae(
        [1.0, 2.0, 3.0], [1.0, 2.0, 4.0, 8.0], dones=[False, True, False], bootstrap_values=[0.0, 6.0, 0.0]
    )
    assert advantages == pytest.approx([1 + 0.25 * 3, 3.0, 3.0])


def test_steps_that_were_not_executed_are_passed_over() -> None:
    with_gap = gae(
        [1.0, 99.0, 2.0, 3.0, 99.0], [1.0, 77.0, 2.0, 4.0, 77.0, 8.0], loss_mask=[True, False, True, True, False]
    )
    without = gae([1.0, 2.0, 3.0], [1.0, 2.0, 4.0, 8.0])
    for gap, plain in zip(with_gap, without, strict=True):
        assert [gap[0], gap[2], gap[3]] == pytest.approx(plain)
        assert gap[1] == gap[4] == 0.0


def test_rest_after_a_done_leaves_no_trace() -> None:
    advantages, returns = gae(
        [2.0, 99.0], [1.0, float("nan"), float("nan")], dones=[True, False], loss_mask=[True, False]
    )
    assert advantages == [1.0, 0.0]
    assert returns == [2.0, 0.0]


def test_normalised_over_valid_steps_and_returns_untouched() -> None:
    advantages, returns = gae([1.0, 2.0, 3.0], [1.0, 2.0, 4.0, 8.0], normalize_advantages=True)
    assert torch.tensor(advantages).mean().item() == pytest.approx(0.0, abs=1e-6)
    assert torch.tensor(advantages).std().item() == pytest.approx(1.0, rel=1e-5)
    assert returns == pytest.approx([2.6875, 4.75, 7.0])


def test_without_values_the_error_says_what_to_do() -> None:
    step = torch.zeros(1, 1)
    with pytest.raises(AlgorithmError, match="value head"):
        calculate_adv_and_returns(
            "gae",
            rewards=step,
            values=None,
            dones=step.bool(),
            loss_mask=step.bool(),
            gamma=1.0,
            gae_lambda=1.0,
            normalize_advantages=False,
        )
