"""Samples of older policies against numbers worked out entry by entry."""

from __future__ import annotations

import math

import pytest
import torch

from rlinf.algorithms.aggregation import compute_loss_denominators
from rlinf.algorithms.registry import policy_loss
from rlinf.algorithms.types import finalize_metrics
from rlinf.errors import AlgorithmError

CURRENT = [[-1.0, -0.5], [-2.0, -0.1], [-0.3, -0.7]]
PROXIMAL = [[-1.1, -1.0], [-1.6, -0.1], [-0.3, float("nan")]]
BEHAVIOUR = [[-1.3, -3.0], [-1.5, -0.4], [-0.2, -9.0]]
ADVANTAGES = [[1.0, 2.0], [-1.0, -0.5], [0.3, float("inf")]]
MASK = [[True, True], [True, True], [True, False]]
LOW, HIGH, DUAL, LARGEST = 0.2, 0.3, 3.0, 2.0


def compute(name: str, **changes: object) -> tuple[torch.Tensor, dict[str, float], torch.Tensor | None]:
    logprobs = torch.tensor(CURRENT, requires_grad=True)
    mask, ones = torch.tensor(MASK), torch.ones(3, 1)
    loss, metrics = policy_loss(
        name,
        **{
            "logprobs": logprobs,
            "old_logprobs": torch.tensor(BEHAVIOUR),
            "proximal_logprobs": torch.tensor(PROXIMAL),
            "advantages": torch.tensor(ADVANTAGES),
            "loss_mask": mask,
            "values": ones * 0.5,
            "prev_values": ones * 0.25,
            "returns": ones,
            "value_mask": ones.bool(),
            "denominators": compute_loss_denominators(
                policy_mask=mask,
                entropy_mask=mask,
                value_mask=ones.bool(),
                data_parallel_size=1,
                all_reduce=lambda x: x,
            ),
            "clip_ratio_low": LOW,
            "clip_ratio_high": HIGH,
            "clip_ratio_c": DUAL,
            "loss_agg_func": "token-mean",
            "entropy_bonus": 0.0,
            "kl_beta": 0.0,
            "kl_penalty": "k3",
            "value_loss_coef": 0.5,
            "value_clip": None,
            "huber_delta": None,
            "behave_weight_threshold": LARGEST,
            **changes,
        },
    )
    loss.backward()
    return loss.detach(), finalize_metrics(metrics), logprobs.grad


def entries() -> list[tuple[float, float, float, float]]:
    """Return (ratio, weight before truncation, loss, gradient) of each entry that counts, in plain arithmetic."""
    result = []
    for row in range(3):
        for column in range(2):
            if not MASK[row][column]:
                continue
            advantage = ADVANTAGES[row][column]
            ratio = math.exp(CURRENT[row][column] - PROXIMAL[row][column])
            weight = math.exp(PROXIMAL[row][column] - BEHAVIOUR[row][column])
            objective = min(ratio * advantage, min(max(ratio, 1 - LOW), 1 + HIGH) * advantage)
            is_free = objective == ratio * advantage
            if advantage < 0 and objective < DUAL * advantage:
                objective, is_free = DUAL * advantage, False
            weight_used = min(weight, LARGEST)
            result.append((ratio, weight, -weight_used * objective, -weight_used * advantage * ratio * is_free))
    return result


def test_loss_gradient_and_metrics_are_those_worked_out_by_hand() -> None:
    loss, metrics, gradient = compute("decoupled_actor_critic")
    expected = entries()
    actor = sum(entry[2] for entry in expected) / 5
    assert metrics["actor_loss"] == pytest.approx(actor, rel=1e-5)
    assert loss.item() == pytest.approx(actor + 0.5 * 0.5 * 0.5**2, rel=1e-5)
    assert gradient.flatten()[:5].tolist() == pytest.approx([entry[3] / 5 for entry in expected], rel=1e-5)
    assert gradient[2, 1] == 0
    assert metrics["actor_ratio"] == pytest.approx(sum(entry[0] for entry in expected) / 5, rel=1e-5)
    weights = [entry[1] for entry in expected]
    assert metrics["actor_behave_weight"] == pytest.approx(sum(min(w, LARGEST) for w in weights) / 5, rel=1e-5)
    assert metrics["actor_behave_clip_fraction"] == pytest.approx(sum(w > LARGEST for w in weights) / 5)
    assert metrics["actor_behave_approx_kl"] == pytest.approx(sum(w - 1 - math.log(w) for w in weights) / 5, rel=1e-5)


def test_it_is_the_actor_critic_loss_where_the_proximal_policy_acted() -> None:
    behaviour = torch.tensor(BEHAVIOUR)
    loss, metrics, gradient = compute("decoupled_actor_critic", proximal_logprobs=behaviour)
    expected_loss, expected_metrics, expected_gradient = compute("actor_critic")
    assert torch.equal(loss, expected_loss)
    assert torch.equal(gradient, expected_gradient)
    assert metrics | expected_metrics == metrics
    assert metrics["actor_behave_weight"] == 1


def test_proximal_logprobs_of_another_shape_are_refused() -> None:
    with pytest.raises(AlgorithmError, match="shapes must be equal"):
        compute("decoupled_actor_critic", proximal_logprobs=torch.zeros(3, 1))


def test_the_expected_gradient_of_the_unbiased_divergence_is_the_divergences_own() -> None:
    """By enumeration: the behaviour policy samples each action of a categorical, weighted by its probability."""
    weights = torch.tensor([0.3, -0.2, 0.9, -1.0], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([0.1, 0.3, 0.4, 0.2], dtype=torch.float64).log()
    proximal = torch.tensor([0.2, 0.2, 0.5, 0.1], dtype=torch.float64).log()
    behaviour = torch.tensor([0.6, 0.25, 0.1, 0.05], dtype=torch.float64)
    logprobs = weights.log_softmax(-1)
    exact = torch.autograd.grad((logprobs.exp() * (logprobs - reference)).sum(), weights, retain_graph=True)[0]
    mask, ones = torch.ones(1, 1, dtype=torch.bool), torch.ones(1, 1, dtype=torch.float64)
    expected = torch.zeros_like(weights)
    for action, probability in enumerate(behaviour):
        loss, _ = policy_loss(
            "decoupled_actor_critic",
            logprobs=logprobs[action].view(1, 1),
            old_logprobs=probability.log().view(1, 1),
            proximal_logprobs=proximal[action].view(1, 1),
            ref_logprobs=reference[action].view(1, 1),
            advantages=ones * 0,
            loss_mask=mask,
            values=ones,
            prev_values=ones,
            returns=ones,
            value_mask=mask,
            denominators=compute_loss_denominators(
                policy_mask=mask, entropy_mask=mask, value_mask=mask, data_parallel_size=1, all_reduce=lambda x: x
            ),
            clip_ratio_low=LOW,
            clip_ratio_high=HIGH,
            clip_ratio_c=None,
            loss_agg_func="token-mean",
            entropy_bonus=0.0,
            kl_beta=0.1,
            kl_penalty="k3_unbiased",
            value_loss_coef=0.0,
            value_clip=None,
            huber_delta=None,
            behave_weight_threshold=1.0,
        )
        expected += probability * torch.autograd.grad(loss, weights, retain_graph=True)[0]
    assert torch.allclose(expected, 0.1 * exact, rtol=1e-9)
