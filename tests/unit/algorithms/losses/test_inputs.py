"""What policy losses take: shapes are checked, masked entries are 0."""

from __future__ import annotations

import pytest
import torch

from rlinf.algorithms.aggregation import compute_loss_denominators
from rlinf.algorithms.losses.inputs import LossInputs, LossOutput
from rlinf.errors import AlgorithmError

MASK = torch.tensor([[True, True, False]])
DENOMINATORS = compute_loss_denominators(policy_mask=MASK)


def make(**tensors: torch.Tensor) -> LossInputs:
    return LossInputs(loss_mask=MASK, denominators=DENOMINATORS, **tensors)


def test_the_log_ratio_is_0_outside_the_mask_and_trains_the_current_policy() -> None:
    current = torch.tensor([[-1.0, -2.0, torch.nan]], requires_grad=True)
    old = torch.tensor([[-1.5, -1.0, -1.0]], requires_grad=True)
    ratio = make(logprobs=current, old_logprobs=old).log_ratio()
    assert ratio.tolist() == [[0.5, -1.0, 0.0]]
    gradients = torch.autograd.grad(ratio.sum(), (current, old), allow_unused=True)
    assert gradients[0].tolist() == [[1.0, 1.0, 0.0]]
    assert gradients[1] is None


def test_a_ratio_of_half_precision_is_taken_in_single() -> None:
    half = torch.zeros(1, 3, dtype=torch.bfloat16)
    assert make(logprobs=half, old_logprobs=half).log_ratio().dtype == torch.float32


def test_masked_tensors_are_0_outside_and_must_be_there() -> None:
    assert make(advantages=torch.tensor([[1.0, 2.0, torch.inf]])).masked("advantages").tolist() == [[1.0, 2.0, 0.0]]
    with pytest.raises(AlgorithmError, match="LossInputs without 'advantages'"):
        make().masked("advantages")


def test_shapes_are_those_of_the_mask_unless_a_tensor_has_its_own() -> None:
    with pytest.raises(AlgorithmError, match=r"loss_mask \[1, 3\], advantages \[3\]"):
        make(advantages=torch.ones(3))
    with pytest.raises(AlgorithmError, match=r"entropy \[1\]"):
        make(entropy=torch.ones(1))
    make(entropy=torch.ones(1), entropy_mask=torch.ones(1, dtype=torch.bool), values=torch.ones(1, 1))


def test_an_output_is_named_actor_loss_unless_it_says_otherwise() -> None:
    output = LossOutput(torch.zeros(1))
    assert (output.name, dict(output.metrics)) == ("actor_loss", {})
