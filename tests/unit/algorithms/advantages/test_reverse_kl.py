"""Advantages of distillation against plain numbers, and their policy gradient against the gradient of the KL itself."""

from __future__ import annotations

import pytest
import torch

from rlinf.algorithms.advantages_and_returns import compute_advantages_and_returns
from rlinf.algorithms.steps import responses_to_steps
from rlinf.config.schema.algorithm import DistillationConfig
from rlinf.errors import AlgorithmError

STUDENT = ([-1.0, -2.0, -0.5], [-0.25, -3.0])
TEACHER = ([-0.5, -2.5, -0.5], [-1.25, -1.0])
MASKS = ([True, True, False], [True, True])


def ragged(rows: tuple[list[float], ...]) -> tuple[torch.Tensor, ...]:
    return tuple(torch.tensor(row) for row in rows)


def test_a_token_is_credited_with_the_difference_to_the_teacher() -> None:
    steps = responses_to_steps(
        scores=torch.tensor([1.0, 0.0]),
        loss_masks=ragged(MASKS),
        group_ids=torch.tensor([0, 0]),
        old_logprobs=ragged(STUDENT),
        ref_logprobs=ragged(TEACHER),
    )
    computed, metrics = compute_advantages_and_returns("opd", steps, DistillationConfig())
    assert computed.advantages[:, 0].tolist() == [0.5, -0.5, 0.0]
    assert computed.advantages[:, 1].tolist() == [-1.0, 2.0, 0.0]
    # The mean KL of the four tokens: minus the mean advantage.
    assert float(metrics["kl_reward"][0] / metrics["kl_reward"][1]) == pytest.approx(-0.25)


def test_without_a_teacher_there_is_an_error() -> None:
    steps = responses_to_steps(
        scores=torch.ones(1), loss_masks=ragged(([True],)), group_ids=torch.zeros(1, dtype=torch.int64)
    )
    with pytest.raises(AlgorithmError, match="algorithm.teacher"):
        compute_advantages_and_returns("opd", steps, DistillationConfig())
