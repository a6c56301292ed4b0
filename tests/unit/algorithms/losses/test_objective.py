"""What holds for every policy loss: which tensors it trains, and that neither masked entries nor packing change it."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import pytest
import torch

from rlinf.algorithms.aggregation import LOSS_AGG_FUNCS, compute_loss_denominators
from rlinf.algorithms.registry import policy_loss
from rlinf.algorithms.types import finalize_metrics
from rlinf.config.registries import losses
from rlinf.config.schema.algorithm import OffPolicyLossConfig
from rlinf.config.schema.value import FrameValueLossConfig

LENGTHS = [3, 1, 4]
SEQUENCE_IDS = torch.repeat_interleave(torch.arange(3), torch.tensor(LENGTHS))
MASK = torch.tensor([True, False, True, True, True, True, False, True])
POLICY = ("logprobs", "old_logprobs", "advantages", "entropy", "ref_logprobs")
VALUES = ("values", "prev_values", "returns")
TENSORS = {
    "actor": POLICY,
    "cispo": POLICY,
    "gspo": POLICY,
    "opd": POLICY,
    "actor_critic": (*POLICY, *VALUES),
    "decoupled_actor_critic": (*POLICY, *VALUES, "proximal_logprobs"),
    "embodied_nft": ("velocity", "old_velocity", "target", "advantages", *VALUES),
    "sft": ("logprobs", "entropy"),
}
"""By loss: the tensors that it takes."""
TRAINED = {"logprobs", "entropy", "values", "velocity"}
"""Outputs of the model; all other tensors are constants of an update."""
KEYS = {"entropy_bonus": 0.1, "kl_beta": 0.2, "value_clip": 0.3, "clip_ratio_c": 3.0}
KL = ("k1", "abs", "k2", "k3", "k3_unbiased")
CASES = [(name, kind) for name in ("actor", "decoupled_actor_critic") for kind in KL]
CASES += [(name, "k3") for name in TENSORS if (name, "k3") not in CASES]
"""The divergence of the others is computed where the actor's is."""


def trained_by(name: str) -> set[str]:
    """Return the tensors that a loss trains; supervised fine-tuning only reports its entropy."""
    return {"logprobs"} if name == "sft" else TRAINED & set(TENSORS[name])


def make(name: str) -> dict[str, torch.Tensor]:
    """Return float64 [8] for each tensor of a loss: ratios near 1, some of them clipped."""
    generator = torch.Generator().manual_seed(5)
    tensors = {key: 0.4 * torch.randn(8, generator=generator, dtype=torch.float64) for key in TENSORS[name]}
    return {key: tensor.requires_grad_() for key, tensor in tensors.items()}


def rows(tensor: torch.Tensor) -> torch.Tensor:
    """[T] to [N, L], padded on the right."""
    return torch.nn.utils.rnn.pad_sequence(list(tensor.split(LENGTHS)), batch_first=True)


def compute(
    name: str, tensors: dict[str, torch.Tensor], *, packed: bool = True, **over: Any
) -> tuple[torch.Tensor, dict[str, float]]:
    fields = asdict(losses.configs.get(name)())
    keys = {key: value for key, value in KEYS.items() if key in fields} | over
    mask, ids = (MASK, SEQUENCE_IDS) if packed else (rows(MASK), None)
    if not packed:
        tensors = {key: rows(tensor) for key, tensor in tensors.items()}
    of_flows = {"saturated": torch.zeros_like(mask), "value_mask": mask}
    extra: dict[str, Any] = of_flows if name == "embodied_nft" else {"sequence_ids": ids}
    denominators = compute_loss_denominators(policy_mask=mask, max_tokens=4, sequence_ids=ids)
    loss, metrics = policy_loss(
        name, **{**fields, **keys}, **tensors, **extra, loss_mask=mask, denominators=denominators
    )
    return loss, finalize_metrics(metrics)


def gradients(name: str, tensors: dict[str, torch.Tensor], **over: Any) -> dict[str, torch.Tensor | None]:
    loss, _ = compute(name, tensors, **over)
    found = torch.autograd.grad(loss, list(tensors.values()), allow_unused=True)
    return dict(zip(tensors, found, strict=True))


def test_every_registered_loss_is_listed() -> None:
    others = (OffPolicyLossConfig, FrameValueLossConfig)
    assert set(TENSORS) == {name for name in losses if not issubclass(losses.configs.get(name), others)}


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_outputs_of_the_model_are_trained_and_nothing_else(name: str, kind: str) -> None:
    found = gradients(name, make(name), kl_penalty=kind)
    assert {key for key, gradient in found.items() if gradient is not None} == trained_by(name)
    assert all(float(found[key].abs().sum()) > 0 for key in trained_by(name))  # type: ignore[union-attr]


@pytest.mark.parametrize("garbage", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_masked_entries_have_no_say(name: str, kind: str, garbage: float) -> None:
    over = {"kl_penalty": kind}
    clean = make(name)
    loss, metrics = compute(name, clean, **over)
    expected = gradients(name, clean, **over)
    for key, tensor in clean.items():
        spoilt = tensor.detach().masked_fill(~MASK, garbage).requires_grad_()
        tensors = clean | {key: spoilt}
        other, numbers = compute(name, tensors, **over)
        assert other.item() == loss.item(), key
        assert numbers == metrics, key
        found = gradients(name, tensors, **over)
        for trained in trained_by(name):
            assert torch.equal(found[trained], expected[trained]), (key, trained)  # type: ignore[arg-type]
            assert not found[trained][~MASK].any(), (key, trained)  # type: ignore[index]


@pytest.mark.parametrize("loss_agg_func", LOSS_AGG_FUNCS)
@pytest.mark.parametrize("name", [name for name in TENSORS if name != "embodied_nft"])
def test_packed_sequences_are_rows(name: str, loss_agg_func: str) -> None:
    tensors = make(name)
    over = {"loss_agg_func": loss_agg_func}
    (packed, numbers), (padded, others) = (compute(name, tensors, packed=flag, **over) for flag in (True, False))
    assert packed.item() == pytest.approx(padded.item(), rel=1e-12)
    assert numbers == pytest.approx(others, rel=1e-12)
    found, expected = (gradients(name, tensors, packed=flag, **over) for flag in (True, False))
    for key in trained_by(name):
        torch.testing.assert_close(found[key], expected[key])


@pytest.mark.parametrize("name", ["actor", "actor_critic", "cispo", "gspo"])
@pytest.mark.parametrize("kind", KL)
def test_the_gradient_of_the_divergence(name: str, kind: str) -> None:
    # d/d log p of each estimate, from its formula, with w = p / (the policy that acted).
    tensors = {key: tensor for key, tensor in make(name).items() if key != "entropy"}
    over = {"kl_penalty": kind, "entropy_bonus": 0.0, "loss_agg_func": "token-mean"}
    with_kl = gradients(name, tensors, kl_beta=0.5, **over)["logprobs"]
    without = gradients(name, tensors, kl_beta=0.0, **over)["logprobs"]
    logprobs, reference, old = (tensors[key].detach() for key in ("logprobs", "ref_logprobs", "old_logprobs"))
    difference = logprobs - reference
    slope = {
        "k1": torch.ones_like(difference),
        "abs": difference.sign(),
        "k2": difference,
        "k3": 1 - (-difference).exp(),
        "k3_unbiased": (logprobs - old).exp() * difference,
    }[kind]
    assert with_kl is not None
    assert without is not None
    torch.testing.assert_close(with_kl - without, 0.5 * slope * MASK / MASK.sum())


@pytest.mark.parametrize("name", ["actor", "actor_critic", "decoupled_actor_critic", "cispo", "gspo"])
def test_the_entropy_bonus_raises_each_valid_entropy_alike(name: str) -> None:
    gradient = gradients(name, make(name), entropy_bonus=0.3)["entropy"]
    assert gradient is not None
    torch.testing.assert_close(gradient, -0.3 * MASK.double() / MASK.sum())
