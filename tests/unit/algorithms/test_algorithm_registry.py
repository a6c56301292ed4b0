"""Names, dispatch and error messages of the algorithm registry."""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import dataclass

import pytest
import torch

from rlinf.algorithms.registry import (
    calculate_adv_and_returns,
    get_adv_and_returns,
    get_policy_loss,
    policy_loss,
    register_advantage,
    register_policy_loss,
)
from rlinf.config.registries import advantages, losses
from rlinf.config.schema.algorithm import AdvantageConfig, LossConfig
from rlinf.errors import AlgorithmError, RegistryError


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(RegistryError, match="Did you mean 'grpo'"):
        get_adv_and_returns("grop")
    with pytest.raises(RegistryError, match="Did you mean 'actor_critic'"):
        policy_loss("actor_critc")


def test_names_are_lower_cased() -> None:
    assert get_adv_and_returns("GAE") is get_adv_and_returns("gae")


@pytest.mark.parametrize("name", ["gae", "grpo", "reinpp", "reinpp_baseline", "rloo", "raw"])
def test_an_advantages_config_fields_are_its_recipe_arguments(name: str) -> None:
    # The filter's keys belong to the caller, which masks groups before advantages are computed.
    from_caller = {"filter_rewards", "rewards_lower_bound", "rewards_upper_bound"}
    tensors = {"rewards", "values", "bootstrap_values", "dones", "loss_mask", "group_ids", "all_reduce"}
    fields = {field.name for field in dataclasses.fields(advantages.configs.get(name))}
    accepted = set(inspect.signature(get_adv_and_returns(name)).parameters)
    assert accepted - tensors == fields - from_caller


@pytest.mark.parametrize("name", ["actor", "actor_critic"])
def test_every_field_of_a_loss_config_is_read_by_the_loss(name: str) -> None:
    parameters = inspect.signature(get_policy_loss(name)).parameters
    fields = {field.name for field in dataclasses.fields(losses.configs.get(name))}
    assert fields <= set(parameters)
    assert all(parameters[field].default is inspect.Parameter.empty for field in fields)


def test_dispatch_passes_only_accepted_arguments_and_names_missing_ones() -> None:
    rewards, mask = torch.ones(2, 1), torch.ones(2, 1, dtype=torch.bool)
    advantages, _ = calculate_adv_and_returns("raw", rewards=rewards, loss_mask=mask, gamma=0.5, unused=object())
    assert advantages.tolist() == [[2.0], [2.0]]
    with pytest.raises(AlgorithmError, match=r"'raw' \(compute_raw_advantages\) requires 'loss_mask'"):
        calculate_adv_and_returns("raw", rewards=rewards)


def test_a_plug_in_registers_function_and_config(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in (advantages, losses):
        monkeypatch.setattr(table, "_entries", dict(table._entries))

    @dataclass(frozen=True, kw_only=True)
    class ScaledConfig(AdvantageConfig):
        scale: float = 3.0

    @register_advantage("Scaled", config=ScaledConfig)
    def compute_scaled(*, rewards: torch.Tensor, **rest: object) -> tuple[torch.Tensor, torch.Tensor]:
        assert set(rest) == {"scale", "anything"}
        return rewards, rewards

    @register_policy_loss("plain")
    def plain_loss(logprobs: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        return -logprobs.mean(), {}

    assert advantages.configs.get("scaled") is ScaledConfig
    assert losses.configs.get("plain") is LossConfig
    calculate_adv_and_returns("scaled", rewards=torch.ones(1, 1), scale=3.0, anything=1)
    assert policy_loss("plain", logprobs=torch.tensor([-2.0]), loss_mask=None)[0].item() == 2.0
    with pytest.raises(RegistryError, match="already registered"):
        register_advantage("scaled")(lambda *, rewards: (rewards, rewards))
    with pytest.raises(RegistryError, match="already registered"):
        register_advantage("gae")(compute_scaled)
