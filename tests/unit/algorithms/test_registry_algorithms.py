"""Names, dispatch and error messages of the algorithm registry."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from rlinf.algorithms.aggregation import compute_loss_denominators
from rlinf.algorithms.losses.inputs import LossInputs, LossOutput
from rlinf.algorithms.registry import (
    calculate_adv_and_returns,
    get_adv_and_returns,
    policy_loss,
    register_advantage,
    register_policy_loss,
)
from rlinf.algorithms.types import finalize_metrics
from rlinf.config.registries import advantages, losses
from rlinf.config.schema.algorithm import AdvantageConfig, LossConfig, RegularizedLossConfig
from rlinf.errors import AlgorithmError, RegistryError


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(RegistryError, match="Did you mean 'grpo'"):
        get_adv_and_returns("grop")
    with pytest.raises(RegistryError, match="Did you mean 'actor_critic'"):
        policy_loss("actor_critc")


def test_names_are_lower_cased() -> None:
    assert get_adv_and_returns("GAE") is get_adv_and_returns("gae")


def test_dispatch_passes_only_accepted_arguments_and_names_missing_ones() -> None:
    rewards, mask = torch.ones(2, 1), torch.ones(2, 1, dtype=torch.bool)
    advantages, _ = calculate_adv_and_returns("raw", rewards=rewards, loss_mask=mask, gamma=0.5, unused=object())
    assert advantages.tolist() == [[2.0], [2.0]]
    with pytest.raises(AlgorithmError, match="LossInputs requires 'denominators'"):
        policy_loss("actor", loss_mask=mask)
    inputs = {"loss_mask": mask, "denominators": compute_loss_denominators(policy_mask=mask), "logprobs": rewards}
    with pytest.raises(AlgorithmError, match="LossInputs without 'old_logprobs'"):
        policy_loss("actor", **inputs, unused=object())
    with pytest.raises(AlgorithmError, match="Steps requires 'loss_mask'"):
        calculate_adv_and_returns("raw", rewards=rewards)


def test_a_plug_in_registers_function_and_config(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in (advantages, losses):
        monkeypatch.setattr(table, "_entries", dict(table._entries))

    @dataclass(frozen=True, kw_only=True)
    class ScaledConfig(AdvantageConfig):
        scale: float = 3.0

    @dataclass(frozen=True, kw_only=True)
    class PlainConfig(RegularizedLossConfig):
        weight: float = 1.0

    @register_advantage("Scaled", config=ScaledConfig)
    def compute_scaled(*, rewards: torch.Tensor, **rest: object) -> tuple[torch.Tensor, torch.Tensor]:
        assert rest["scale"] == 4.0
        assert "loss_mask" in rest
        return rewards, rewards

    @register_policy_loss("plain", config=PlainConfig)
    def plain_loss(inputs: LossInputs, cfg: PlainConfig) -> LossOutput:
        (logprobs,) = inputs.require("logprobs")
        return LossOutput(-cfg.weight * logprobs, {"logprob": logprobs})

    @register_policy_loss("former")
    def former_loss(*, logprobs: torch.Tensor, denominators: object) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        return -logprobs.mean(), {}

    assert advantages.configs.get("scaled") is ScaledConfig
    assert losses.configs.get("former") is LossConfig
    calculate_adv_and_returns("scaled", rewards=torch.ones(1, 1), loss_mask=None, scale=4.0, unused=1)
    mask = torch.tensor([[True], [False]])
    inputs = LossInputs(
        logprobs=torch.tensor([[-2.0], [-9.0]]),
        entropy=torch.ones(2, 1),
        loss_mask=mask,
        denominators=compute_loss_denominators(policy_mask=mask),
    )
    loss, metrics = policy_loss("plain", inputs, PlainConfig(weight=3.0, entropy_bonus=0.5))
    assert loss.item() == 6.0 - 0.5
    assert finalize_metrics(metrics) == {"logprob": -2.0, "actor_loss": 6.0, "actor_entropy": 1.0, "total_loss": 5.5}
    # What its function of keyword arguments returns is the whole loss.
    loss, metrics = policy_loss("former", inputs, LossConfig())
    assert (loss.item(), metrics) == (5.5, {})
    with pytest.raises(RegistryError, match="already registered"):
        register_advantage("scaled")(lambda *, rewards: (rewards, rewards))
    with pytest.raises(RegistryError, match="already registered"):
        register_advantage("gae")(compute_scaled)
