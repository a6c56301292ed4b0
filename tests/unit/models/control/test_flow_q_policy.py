"""The policy of SAC Flow: log-probabilities of all steps and of the squashing, and bounded gradients through them."""

import math

import pytest
import torch
from torch.distributions import Normal, TanhTransform

from rlinf.config.schema.model import FlowPolicyConfig
from rlinf.models import get_model
from rlinf.models.base_policy import ForwardType
from rlinf.models.trainable import TrainableModel

ROWS, CHUNK, DIM, STEPS = 6, 3, 2, 4


def policy(**keys: float | str) -> TrainableModel:
    torch.manual_seed(0)
    keys = {"velocity": "gated", "noise_method": "flow_noise", "noise_level": 0.3, "num_denoise_steps": STEPS, **keys}
    cfg = FlowPolicyConfig(
        model_type="flow_policy",
        obs_dim=5,
        action_dim=DIM,
        num_action_chunks=CHUNK,
        hidden_dims=[16, 8],
        add_q_head=True,
        **keys,
    )
    return get_model(cfg)


def observations() -> dict[str, torch.Tensor]:
    return {"states": torch.randn(ROWS, 5, generator=torch.Generator().manual_seed(1))}


def draw(model: TrainableModel, seed: int = 2) -> torch.Tensor:
    return torch.randn(ROWS, *model.noise_shape, generator=torch.Generator().manual_seed(seed))


def test_log_probabilities_are_those_of_the_steps_and_of_the_squashing() -> None:
    model, obs = policy(action_scale=2.0), observations()
    actions, report = model.predict_action_batch(obs, mode="train", generator=torch.Generator().manual_seed(2))
    chain, sample = report.forward_inputs["chain"], report.forward_inputs["action"]
    assert torch.equal(actions, 2.0 * sample)
    torch.testing.assert_close(sample, chain[:, -1].tanh())
    std = model.flow.noise.log_stds(obs["states"])[:, 0].exp()
    expected = -TanhTransform().log_abs_det_jacobian(chain[:, -1], sample)
    for step in range(STEPS):
        time = torch.full((ROWS,), step / STEPS)
        mean = chain[:, step] + model.flow.velocity(obs["states"], chain[:, step], time) / STEPS
        expected = expected + Normal(mean, std).log_prob(chain[:, step + 1])
    torch.testing.assert_close(report.logprobs, expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(model(forward_inputs=report.forward_inputs).logprobs, expected, atol=1e-4, rtol=1e-4)


def test_evaluation_draws_nothing() -> None:
    model, before = policy(), torch.get_rng_state()
    first, _ = model.predict_action_batch(observations(), mode="eval")
    second, _ = model.predict_action_batch(observations(), mode="eval")
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first, second)


def test_the_policy_climbs_the_critics_through_all_steps() -> None:
    model = policy()
    evaluation = model(ForwardType.ACTOR, inputs=observations(), noise=draw(model))
    assert evaluation.q.shape == (ROWS, 2)
    assert evaluation.logprobs.shape == (ROWS,)
    evaluation.q.sum().backward()
    assert all(float(p.grad.abs().sum()) > 0 for p in model.flow.network.parameters())


def test_the_critic_pass_values_the_next_action_by_the_target_without_gradient() -> None:
    model, obs = policy(), observations()
    after, noise = {"states": obs["states"] + 1}, draw(model)
    with torch.no_grad():
        model.target_critic.layers[-1].bias += 7.0
    action = torch.zeros(ROWS, CHUNK, DIM)
    evaluation = model(ForwardType.CRITIC, inputs=obs, action=action, next_inputs=after, noise=noise)
    present = model(ForwardType.ACTOR, inputs=after, noise=noise)
    torch.testing.assert_close(evaluation.next_q, present.q.detach() + 7.0)
    torch.testing.assert_close(evaluation.next_logprobs, present.logprobs.detach())
    assert not evaluation.next_q.requires_grad
    evaluation.q.sum().backward()
    assert all(p.grad is None for p in model.flow.parameters())


@pytest.mark.parametrize(
    ("velocity", "expected"), [("mlp", 1.0), ("gated", (1 - 1 / (1 + math.exp(-5)) / STEPS) ** STEPS)]
)
def test_gates_forget_a_share_of_the_start_in_each_step(velocity: str, expected: float) -> None:
    model = policy(velocity=velocity)
    noise = draw(model).requires_grad_()
    model.flow.sample(observations()["states"], noise)[0][:, -1].sum().backward()
    # At the start of training, outputs of the networks hardly depend on where a step begins.
    torch.testing.assert_close(noise.grad[:, 0], torch.full((ROWS, CHUNK, DIM), expected), atol=0.05, rtol=0.0)


@pytest.mark.parametrize("velocity", ["mlp", "gated"])
def test_parameters_of_critics_are_told_apart(velocity: str) -> None:
    model = policy(velocity=velocity)
    names = [name for name, _ in model.named_parameters()]
    assert all(model.is_critic_parameter(name) == name.startswith("critic.") for name in names)
    assert {name.split(".")[0] for name in names if not model.is_training_only(name)} == {"flow"}
