"""What GSPO and CISPO have in common with the other policy losses."""

import math

import pytest
import torch
from sequence_rows import ADVANTAGES, LOGPROBS, MASK, OLD, compute

from rlinf.algorithms.types import finalize_metrics
from rlinf.errors import AlgorithmError


@pytest.mark.parametrize("loss_type", ["gspo", "cispo", "actor"])
def test_on_policy_all_have_the_same_gradient(loss_type: str) -> None:
    logprobs = torch.tensor(OLD, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(compute(loss_type, logprobs, loss_agg_func="token-mean")[0], logprobs)
    assert gradient.tolist() == pytest.approx([-a / 8 if m else 0.0 for a, m in zip(ADVANTAGES, MASK, strict=True)])


@pytest.mark.parametrize("loss_type", ["gspo", "cispo"])
def test_entropy_and_divergence_are_added_as_in_the_actor_loss(loss_type: str) -> None:
    reference = torch.tensor(OLD, dtype=torch.float64) - 0.1
    entropy = torch.linspace(1, 2, 9, dtype=torch.float64)
    keys = {"entropy_bonus": 0.5, "kl_beta": 0.2, "kl_penalty": "k2", "loss_agg_func": "token-mean"}
    plain = compute(loss_type, loss_agg_func="token-mean")[0].item()
    loss, metrics = compute(loss_type, **keys, ref_logprobs=reference, entropy=entropy)
    k2 = [0.5 * (p - q) ** 2 for p, q in zip(LOGPROBS, reference.tolist(), strict=True)][:8]
    assert loss.item() == pytest.approx(plain - 0.5 * entropy[:8].mean().item() + 0.2 * sum(k2) / 8)
    assert finalize_metrics(metrics)["actor_kl_ref"] == pytest.approx(sum(k2) / 8)
    with pytest.raises(AlgorithmError, match="algorithm.kl_beta > 0 needs 'ref_logprobs'"):
        compute(loss_type, kl_beta=0.1)
    with pytest.raises(AlgorithmError, match="shapes must be equal"):
        compute(loss_type, advantages=torch.zeros(3))


@pytest.mark.parametrize("loss_type", ["gspo", "cispo"])
def test_what_is_masked_has_no_say(loss_type: str) -> None:
    expected = compute(loss_type)[0]
    over = {"logprobs": LOGPROBS[:8] + [math.nan], "advantages": ADVANTAGES[:8] + [math.inf]}
    tensors = {name: torch.tensor(values, dtype=torch.float64) for name, values in over.items()}
    tensors["logprobs"].requires_grad_()
    loss, _ = compute(loss_type, tensors["logprobs"], advantages=tensors["advantages"])
    assert loss.item() == expected.item()
    loss.backward()
    assert tensors["logprobs"].grad.isfinite().all()
