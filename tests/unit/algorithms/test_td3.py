"""Every expected number is computed by hand from the paper's equations."""

import math

import pytest
import torch

from rlinf.algorithms.registry import OffPolicyAlgorithm, make_off_policy_algorithm
from rlinf.config.schema.algorithm import TD3LossConfig

KEYS = {"gamma": 0.9, "agg_q": "min", "actor_agg_q": "q1", "target_noise": 0.2, "target_noise_clip": 0.5}
TRANSITIONS = {
    "q": torch.tensor([[1.0, 2.0], [0.0, 0.5]]),
    "next_q": torch.tensor([[3.0, 5.0], [4.0, math.nan]]),
    "next_logprobs": None,
    "rewards": torch.tensor([0.5, 1.0]),
    "terminated": torch.tensor([False, True]),
    "lengths": torch.tensor([2, 1]),
}


def td3(**keys: str) -> OffPolicyAlgorithm:
    cfg = TD3LossConfig(**{**KEYS, **keys})
    return make_off_policy_algorithm("embodied_td3", cfg, action_size=4, device=torch.device("cpu"))


def test_target_noise_is_scaled_and_clipped() -> None:
    noise = td3().next_noise(torch.tensor([-5.0, -1.0, 0.0, 2.0, 2.6]))
    assert noise.tolist() == pytest.approx([-0.5, -0.2, 0.0, 0.4, 0.5])


@pytest.mark.parametrize(("agg_q", "target"), [("min", 0.5 + 0.81 * 3.0), ("mean", 0.5 + 0.81 * 4.0)])
def test_critic_loss(agg_q: str, target: float) -> None:
    loss, metrics = td3(agg_q=agg_q).critic_loss(**TRANSITIONS)
    first = ((1 - target) ** 2 + (2 - target) ** 2) / 2
    second = (1.0 + 0.25) / 2  # terminated: the target is the reward alone, whatever the critics say of what follows
    assert loss.item() == pytest.approx(first + second, rel=1e-6)
    assert metrics["q_target"].tolist() == pytest.approx([target + 1.0, 2.0])
    assert metrics["q_value"].tolist() == pytest.approx([1.5 + 0.25, 2.0])


@pytest.mark.parametrize(("how", "expected"), [("q1", -1.0), ("min", -(1.0 - 1.0)), ("mean", -(1.5 - 0.5))])
def test_actor_loss(how: str, expected: float) -> None:
    q = torch.tensor([[1.0, 2.0], [0.0, -1.0]], requires_grad=True)
    loss, metrics = td3(actor_agg_q=how).actor_loss(q=q, logprobs=None)
    assert loss.item() == pytest.approx(expected, abs=1e-6)
    assert metrics["actor_loss"].tolist() == pytest.approx([expected, 2.0], abs=1e-6)
    loss.backward()
    assert float(q.grad.sum()) == pytest.approx(-2.0)
