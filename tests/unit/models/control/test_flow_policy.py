"""A flow learns a distribution, samples from it with and without noise in its steps, and knows the density of these."""

import pytest
import torch
from flow_policies import CHUNK, DIM, ROWS, STEPS, act, build, observations, shake

from rlinf.models.base_policy import ForwardType

NOISY = ["flow_sde", "flow_noise"]


@pytest.mark.parametrize("velocity", ["mlp", "gated"])
@pytest.mark.parametrize("method", NOISY)
def test_log_probabilities_of_the_chain_are_recomputed(method: str, velocity: str) -> None:
    policy = shake(build(noise_method=method, velocity=velocity, normalize_obs=True, add_value_head=True))
    actions, output = act(policy)
    assert actions.shape == output.logprobs.shape == (ROWS, CHUNK, DIM)
    assert output.forward_inputs["chain"].shape == (ROWS, STEPS + 1, CHUNK, DIM)
    evaluation = policy(forward_inputs=output.forward_inputs)
    torch.testing.assert_close(evaluation.logprobs, output.logprobs, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(evaluation.values, output.values)
    assert evaluation.entropy.shape == output.logprobs.shape


def test_without_noise_only_the_start_is_random() -> None:
    policy = shake(build(noise_method="flow_ode", action_scale=2.0))
    actions, output = act(policy)
    start = output.forward_inputs["chain"][:, 0]
    expected = policy.flow.integrate(observations()["states"], start)
    assert (expected.abs() > 1).any()
    torch.testing.assert_close(actions, 2.0 * expected.clamp(-1.0, 1.0))
    assert not output.logprobs.any()
    assert not torch.equal(actions, act(policy, seed=3)[0])


@pytest.mark.parametrize("method", ["flow_ode", *NOISY])
def test_evaluation_follows_the_velocity_from_zero_and_draws_nothing(method: str) -> None:
    policy = shake(build(noise_method=method))
    before = torch.get_rng_state()
    first, second = act(policy, "eval", 2)[0], act(policy, "eval", 3)[0]
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first, second)
    zeros = torch.zeros(ROWS, CHUNK, DIM)
    expected = policy.flow.integrate(observations()["states"], zeros)
    torch.testing.assert_close(first, expected.clamp(-1.0, 1.0) if method == "flow_ode" else expected)


def test_the_velocity_pass_mixes_noise_and_actions() -> None:
    policy = shake(build(noise_method="flow_ode", add_value_head=True))
    _, output = act(policy)
    noise, time = torch.randn(ROWS, CHUNK, DIM), torch.rand(ROWS)
    evaluation = policy(ForwardType.VELOCITY, forward_inputs=output.forward_inputs, noise=noise, time=time)
    action, t = output.forward_inputs["action"], time.view(-1, 1, 1)
    point = (1 - t) * noise + t * action
    torch.testing.assert_close(evaluation.target, action - noise)
    assert torch.equal(evaluation.saturated, output.forward_inputs["chain"][:, -1].abs() >= 1)
    torch.testing.assert_close(evaluation.velocity, policy.flow.velocity(observations()["states"], point, time))
    torch.testing.assert_close(evaluation.values, output.values)
