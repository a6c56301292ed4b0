"""Every expected number is computed by hand from the paper's equations."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from rlinf.algorithms.q_learning import aggregate_q
from rlinf.algorithms.registry import OffPolicyAlgorithm, make_off_policy_algorithm, register_off_policy
from rlinf.algorithms.sac import Temperature
from rlinf.config.registries import advantages, losses
from rlinf.config.schema.algorithm import EntropyTuningConfig, NoAdvantageConfig, OffPolicyLossConfig, SACLossConfig
from rlinf.errors import RegistryError

CPU = torch.device("cpu")
KEYS: dict[str, Any] = {
    "gamma": 0.9,
    "agg_q": "min",
    "actor_agg_q": "min",
    "backup_entropy": True,
    "entropy_tuning": EntropyTuningConfig(alpha_type="fixed_alpha", initial_alpha=0.2),
}
TRANSITIONS = {
    "q": torch.tensor([[1.0, 2.0], [0.0, 0.5]]),
    "next_q": torch.tensor([[3.0, 5.0], [4.0, 1.0]]),
    "next_logprobs": torch.tensor([-1.0, 0.5]),
    "rewards": torch.tensor([0.5, 1.0]),
    "terminated": torch.tensor([False, True]),
    "lengths": torch.tensor([2, 1]),
}


def sac(**keys: str | EntropyTuningConfig) -> OffPolicyAlgorithm:
    cfg = SACLossConfig(**{**KEYS, **keys})
    return make_off_policy_algorithm("embodied_sac", cfg, action_size=4, device=CPU)


@pytest.mark.parametrize(
    ("keys", "target"),
    [
        ({}, 0.5 + 0.81 * (3.0 + 0.2)),  # gamma^2 after two actions; min of the ensemble; entropy bonus 0.2 * 1
        ({"agg_q": "mean"}, 0.5 + 0.81 * (4.0 + 0.2)),
        ({"backup_entropy": False}, 0.5 + 0.81 * 3.0),
    ],
)
def test_critic_loss(keys: dict[str, bool | str], target: float) -> None:
    loss, metrics = sac(**keys).critic_loss(**TRANSITIONS)
    first = ((1 - target) ** 2 + (2 - target) ** 2) / 2
    second = (1.0 + 0.25) / 2  # terminated: the target is the reward alone
    assert loss.item() == pytest.approx(first + second, rel=1e-6)
    assert metrics["q_target"].tolist() == pytest.approx([target + 1.0, 2.0])
    assert metrics["critic_loss"].tolist() == pytest.approx([first + second, 2.0])


def test_what_follows_a_termination_cannot_spoil_the_target() -> None:
    values = {**TRANSITIONS, "next_q": torch.tensor([[3.0, 5.0], [math.inf, math.nan]])}
    assert torch.isfinite(sac().critic_loss(**values)[0])


def test_only_the_critics_get_a_gradient_from_their_loss() -> None:
    tensors = {k: v.clone().requires_grad_(v.is_floating_point()) for k, v in TRANSITIONS.items()}
    sac().critic_loss(**tensors)[0].backward()
    assert [name for name, tensor in tensors.items() if tensor.grad is not None] == ["q"]


@pytest.mark.parametrize(
    ("how", "expected"),
    [("min", (-0.1 - 1.0) + (0.2 + 1.0)), ("mean", (-0.1 - 1.5) + (0.2 + 0.5)), ("q1", (-0.1 - 1.0) + 0.2)],
)
def test_actor_loss(how: str, expected: float) -> None:
    q, logprobs = torch.tensor([[1.0, 2.0], [0.0, -1.0]]), torch.tensor([-0.5, 1.0])
    loss, metrics = sac(actor_agg_q=how).actor_loss(q=q, logprobs=logprobs)
    assert loss.item() == pytest.approx(expected, abs=1e-6)
    assert metrics["entropy"].tolist() == pytest.approx([-0.5, 2.0])


def test_the_policys_loss_trains_the_policy_and_the_temperatures_the_temperature() -> None:
    algorithm = sac(entropy_tuning=EntropyTuningConfig(alpha_type="softplus", initial_alpha=0.2))
    q, logprobs = torch.tensor([[1.0, 2.0]], requires_grad=True), torch.tensor([-0.5], requires_grad=True)
    algorithm.actor_loss(q=q, logprobs=logprobs)[0].backward()
    assert q.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([0.2])
    assert algorithm.temperature.raw.grad is None
    logprobs.grad = None
    algorithm.temperature.loss(logprobs.mean()).backward()
    assert algorithm.temperature.raw.grad is not None
    assert logprobs.grad is None


def test_the_critics_loss_does_not_train_the_temperature() -> None:
    algorithm = sac(entropy_tuning=EntropyTuningConfig(alpha_type="exp", initial_alpha=0.2))
    q = TRANSITIONS["q"].clone().requires_grad_()
    algorithm.critic_loss(**{**TRANSITIONS, "q": q})[0].backward()
    assert algorithm.temperature.raw.grad is None


def test_aggregation_keeps_one_value_per_transition() -> None:
    q = torch.arange(6.0).view(3, 2)
    assert [aggregate_q(q, how).tolist() for how in ("min", "mean", "q1")] == [[0, 2, 4], [0.5, 2.5, 4.5], [0, 2, 4]]


@pytest.mark.parametrize(("alpha_type", "slope"), [("softplus", 1 - math.exp(-0.2)), ("exp", 0.2)])
def test_temperature_rises_when_there_is_too_little_entropy(alpha_type: str, slope: float) -> None:
    temperature = Temperature(alpha_type, 0.2, -1.0, CPU)
    assert temperature.alpha.item() == pytest.approx(0.2, rel=1e-6)
    loss = temperature.loss(torch.tensor(3.0))  # entropy -3, two below the target
    assert loss.item() == pytest.approx(-0.2 * 2, rel=1e-6)
    loss.backward()
    assert float(temperature.raw.grad) == pytest.approx(-2 * slope, rel=1e-6)


def test_a_fixed_temperature_is_what_it_is_set_to_even_0() -> None:
    temperature = Temperature("fixed_alpha", 0.0, -1.0, CPU)
    assert float(temperature.alpha) == 0.0
    assert not temperature.is_learned


def test_the_target_entropy_is_minus_the_size_of_a_chunk_unless_given() -> None:
    assert sac().temperature.target_entropy == -4.0
    given = replace(KEYS["entropy_tuning"], target_entropy=-1.5)
    assert sac(entropy_tuning=given).temperature.target_entropy == -1.5


def test_an_unknown_algorithm_gets_a_suggestion() -> None:
    with pytest.raises(RegistryError, match="Did you mean 'embodied_sac'"):
        make_off_policy_algorithm("embodied_sc", SACLossConfig(), action_size=4, device=CPU)


def test_an_algorithm_from_outside_is_a_loss_and_goes_without_advantages(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in (advantages, losses):
        monkeypatch.setattr(table, "_entries", dict(table._entries))

    @register_off_policy("Plain")
    class Plain:
        def __init__(self, *, gamma: Any, action_size: Any) -> None:
            self.gamma, self.action_size = gamma, action_size

    made = make_off_policy_algorithm("plain", OffPolicyLossConfig(gamma=0.5), action_size=3, device=CPU)
    assert (made.gamma, made.action_size) == (0.5, 3)
    assert losses.configs.get("plain") is OffPolicyLossConfig
    assert advantages.configs.get("plain") is NoAdvantageConfig
    with pytest.raises(RegistryError, match="already registered"):
        register_off_policy("embodied_sac")(Plain)
