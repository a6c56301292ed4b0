"""Policies that are built without memory, sharded over two ranks and then filled compute what whole ones do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor

from rlinf.config.schema.train import FSDPConfig, OptimConfig
from rlinf.config.schema.vla import RLTokenConfig, VLAConfig
from rlinf.hybrid_engines.train.fsdp import FSDPEngine
from rlinf.hybrid_engines.train.train_engine import Pass
from rlinf.models import get_policy
from rlinf.models.base_policy import BasePolicy, ForwardType, PolicyEvaluation
from rlinf.models.vla.rl_token import Reconstruction
from rlinf.models.vla.steered_policy import SteeredPolicy
from tests.unit.hybrid_engines.train.rank_processes import run_ranks
from tests.unit.models.vla.gr00t_policies import gr00t_policy
from tests.unit.models.vla.pi_policies import pi_policy
from tests.unit.models.vla.smolvla_policies import smolvla_policy
from tests.unit.models.vla.vla_policies import observations, random_policy

pytest.importorskip("transformers")
pytestmark = pytest.mark.timeout(300)
Inputs = dict[str, torch.Tensor]


def whole_policy(kind: str, folder: Path) -> BasePolicy:
    """Return an unsharded policy with a value head."""
    if kind == "pi05":
        return pi_policy(folder, kind, add_value_head=True)
    if kind == "smolvla":
        return smolvla_policy(folder, add_value_head=True)
    if kind == "gr00t":
        return gr00t_policy(folder, add_value_head=True)
    if kind == "steered":
        return get_policy(replace(pi_policy(folder, "pi05").cfg, add_q_head=True))
    return random_policy(kind, folder, add_value_head=True)


def logprobs_of(model: Any, inputs: Inputs) -> torch.Tensor:
    """Return log-probabilities [N, C, A]."""
    evaluation: PolicyEvaluation = model(forward_inputs=inputs)
    return evaluation.logprobs


def reconstruction_of(model: Any, inputs: Inputs) -> torch.Tensor:
    """Return errors of the token and, where the flow learns, of the flow."""
    found: Reconstruction = model(ForwardType.RECONSTRUCTION, forward_inputs=inputs)
    return torch.cat([found.errors, *([] if found.losses is None else [found.losses.flatten()])])


def evaluate(
    rank: int, cfg: VLAConfig, inputs: Inputs, numbers_of: Callable[[Any, Inputs], torch.Tensor] = logprobs_of
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return log-probabilities of two ranks that have half of the model each, and the gradient of their sum."""
    torch.manual_seed(0)
    engine = FSDPEngine(
        get_policy(cfg, on_meta=True),
        optim=OptimConfig(),
        fsdp=FSDPConfig(gradient_checkpointing=True),
        precision="fp32",
        device=torch.device("cpu"),
        rank=rank,
        world_size=2,
    )
    numbers = engine.forward([inputs], Pass.whole(numbers_of))[0]
    engine.forward_backward([inputs], Pass.whole(lambda model, batch: (numbers_of(model, batch).sum(), {})))
    gradients = {name: p.grad for name, p in engine.model.named_parameters() if p.grad is not None}
    return numbers, {name: g.full_tensor() if isinstance(g, DTensor) else g for name, g in gradients.items()}


@pytest.mark.parametrize("kind", ["oft", "pi05", "smolvla", "gr00t", "steered"])
def test_two_ranks_compute_what_one_does(kind: str, tmp_path: Path) -> None:
    policy = whole_policy(kind, tmp_path)
    states = torch.tensor([[0.1, -0.2, 0.3], [0.5, 0.9, -0.4], [-2.0, 0.0, 0.7]])
    obs = observations() | {"states": states}
    _, report = policy.predict_action_batch(obs, mode="train", generator=torch.Generator().manual_seed(1))
    whole = logprobs_of(policy, report.forward_inputs)
    whole.sum().backward()
    expected = {name: p.grad for name, p in policy.named_parameters() if p.grad is not None}
    cfg = policy.flow.cfg if isinstance(policy, SteeredPolicy) else policy.cfg
    for logprobs, gradients in run_ranks(2, evaluate, cfg, report.forward_inputs):
        torch.testing.assert_close(logprobs, whole.detach(), rtol=0, atol=1e-5)
        assert_same_gradients(gradients, expected)


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_two_ranks_learn_a_token_as_one_does(weight: float, tmp_path: Path) -> None:
    token = RLTokenConfig(vla_loss_weight=weight, num_heads=4, prefix_seq_len=64, mlp_ratio=2.0)
    policy = pi_policy(tmp_path, "pi05", use_rlt=True, rlt=token)
    units = policy.shard_units()
    assert policy.rlt_module is not None
    assert all(layer in units for layer in policy.rlt_module.layers())
    states = torch.tensor([[0.1, -0.2, 0.3], [0.5, 0.9, -0.4], [-2.0, 0.0, 0.7]])
    inputs = policy.forward_inputs_of(observations() | {"states": states}, torch.rand(3, 6, 3))
    inputs |= policy.supervised_draws(3, torch.Generator().manual_seed(1))
    whole = reconstruction_of(policy, inputs)
    whole.sum().backward()
    expected = {name: p.grad for name, p in policy.named_parameters() if p.grad is not None}
    for numbers, gradients in run_ranks(2, evaluate, policy.cfg, inputs, reconstruction_of):
        torch.testing.assert_close(numbers, whole.detach(), rtol=1e-5, atol=1e-5)
        assert_same_gradients(gradients, expected)


def assert_same_gradients(gradients: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Compare gradients by name, each in its own size."""
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        scale = max(1.0, float(expected[name].abs().max()))
        torch.testing.assert_close(gradient / scale, expected[name] / scale, rtol=0, atol=2e-5, msg=name)
