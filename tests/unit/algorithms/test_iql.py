"""Every expected number is computed by hand from the equations of Kostrikov et al. (2021)."""

import math

import pytest
import torch

from rlinf.algorithms.iql import IQL, expectile_loss
from rlinf.config.schema.algorithm import IQLLossConfig

TRANSITIONS = {
    "q": torch.tensor([[1.0, 3.0], [0.0, 0.0]]),
    "target_q": torch.tensor([[2.0, 4.0], [1.0, -1.0]]),
    "values": torch.tensor([1.5, 0.0]),
    "next_values": torch.tensor([2.0, math.nan]),
    "rewards": torch.tensor([0.5, -1.0]),
    "terminated": torch.tensor([False, True]),
    "lengths": torch.tensor([2, 1]),
}


def iql(**keys: float) -> IQL:
    return IQL(
        IQLLossConfig(**{"gamma": 0.9, "expectile": 0.8, "temperature": 2.0, "max_advantage_weight": 10.0} | keys)
    )


def test_expectile_loss_weighs_what_lies_above_by_the_expectile() -> None:
    gap = torch.tensor([2.0, -2.0, 0.0])
    assert expectile_loss(gap, 0.8).tolist() == pytest.approx([0.8 * 4, 0.2 * 4, 0.0])
    assert expectile_loss(gap, 0.5).tolist() == pytest.approx([2.0, 2.0, 0.0])


def test_critic_loss() -> None:
    loss, metrics = iql().critic_loss(**TRANSITIONS)
    target = 0.5 + 0.81 * 2.0  # gamma^2 after two actions; the second transition ends the episode: -1 alone
    critics = ((1 - target) ** 2 + (3 - target) ** 2) / 2 + 1.0
    values = 0.8 * 0.5**2 + 0.2 * 1.0**2  # smallest target value: 2 lies above 1.5, -1 below 0
    assert loss.item() == pytest.approx(critics + values, rel=1e-6)
    assert metrics["critic_loss"].tolist() == pytest.approx([critics, 2.0])
    assert metrics["value_loss"].tolist() == pytest.approx([values, 2.0])
    assert metrics["advantage"].tolist() == pytest.approx([0.5 - 1.0, 2.0])


def test_critics_learn_from_values_and_values_from_target_critics() -> None:
    tensors = {k: v.clone().requires_grad_(v.is_floating_point()) for k, v in TRANSITIONS.items()}
    iql().critic_loss(**tensors)[0].backward()
    assert [name for name, tensor in tensors.items() if tensor.grad is not None] == ["q", "values"]
    assert tensors["values"].grad.tolist() == pytest.approx([-2 * 0.8 * 0.5, 2 * 0.2 * 1.0])


def test_actor_loss_weighs_actions_by_their_advantage_up_to_a_bound() -> None:
    logprobs = torch.tensor([-1.0, -2.0, -3.0], requires_grad=True)
    target_q = torch.tensor([[1.0, 2.0], [0.5, 0.0], [9.0, 9.0]])
    loss, metrics = iql().actor_loss(logprobs=logprobs, target_q=target_q, values=torch.tensor([1.0, 0.5, 0.0]))
    weights = [1.0, math.exp(-1.0), 10.0]
    assert loss.item() == pytest.approx(1 * weights[0] + 2 * weights[1] + 3 * weights[2], rel=1e-6)
    assert metrics["advantage_weight"].tolist() == pytest.approx([sum(weights), 3.0])
    loss.backward()
    assert logprobs.grad.tolist() == pytest.approx([-w for w in weights])


def test_the_policys_loss_trains_the_policy_alone() -> None:
    tensors = {"logprobs": torch.tensor([-1.0]), "target_q": torch.tensor([[1.5, 2.0]]), "values": torch.tensor([1.0])}
    tensors = {name: tensor.requires_grad_() for name, tensor in tensors.items()}
    iql().actor_loss(**tensors)[0].backward()
    assert [name for name, tensor in tensors.items() if tensor.grad is not None] == ["logprobs"]


def test_without_temperature_it_clones_behaviour() -> None:
    logprobs = torch.tensor([-1.0, -2.0])
    loss, _ = iql(temperature=0.0).actor_loss(
        logprobs=logprobs, target_q=torch.tensor([[5.0], [-5.0]]), values=torch.zeros(2)
    )
    assert loss.item() == pytest.approx(3.0)
