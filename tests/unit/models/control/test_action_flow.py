"""From noise to actions: steps with and without noise, and their densities."""

import math

import pytest
import torch
from flow_policies import CHUNK, DIM, ROWS, STEPS, act, build, observations, shake
from torch.distributions import Normal

from rlinf.models.base_policy import ForwardType
from rlinf.models.trainable import TrainableModel


def test_steps_of_a_diffusion_follow_the_formula() -> None:
    policy = shake(build(noise_method="flow_sde", noise_level=0.8))
    _, output = act(policy)
    chain, expected = output.forward_inputs["chain"], torch.zeros(ROWS, CHUNK, DIM)
    for step in range(STEPS):
        now, t = chain[:, step], step / STEPS
        velocity = policy.flow.velocity(output.forward_inputs["states"], now, torch.full((ROWS,), t))
        sigma = 0.8 * math.sqrt((1 - t) / max(t, 0.25))
        score = (t * velocity - now) / (1 - t)
        mean = now + (velocity + 0.5 * sigma**2 * score) / STEPS
        expected += Normal(mean, sigma * math.sqrt(1 / STEPS)).log_prob(chain[:, step + 1])
    torch.testing.assert_close(output.logprobs, expected, atol=1e-4, rtol=1e-4)


def test_learned_noise_starts_at_its_level_and_has_a_gradient() -> None:
    policy = build(noise_method="flow_noise", noise_level=0.2)
    _, output = act(policy)
    evaluation = policy(forward_inputs=output.forward_inputs)
    per_step = 0.5 * math.log(2 * math.pi * math.e) + math.log(0.2)
    torch.testing.assert_close(evaluation.entropy, torch.full((ROWS, CHUNK, DIM), STEPS * per_step), atol=0.3, rtol=0.0)
    evaluation.entropy.sum().backward()
    assert all(float(p.grad.abs().sum()) > 0 for p in policy.flow.noise.head[-1].parameters())


CENTRES = torch.tensor([[0.5, 0.6], [-0.5, -0.2]])
SPREAD = 0.1


def train_on_a_mixture(**keys: str | float) -> TrainableModel:
    """Match a flow to 2-D actions around two centres, mirrored where the state is negative."""
    policy = build(obs_dim=1, action_dim=2, num_action_chunks=1, hidden_dims=[64, 64], activation="gelu", **keys)
    optimizer = torch.optim.Adam(policy.parameters(), 3e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(500):
        states = torch.randint(2, (512, 1), generator=generator) * 2.0 - 1.0
        centres = CENTRES[torch.randint(2, (512,), generator=generator)]
        action = states * centres + SPREAD * torch.randn(512, 2, generator=generator)
        noise, time = torch.randn(512, 1, 2, generator=generator), torch.rand(512, generator=generator)
        inputs = {"states": states, "action": action.unsqueeze(1)}
        evaluation = policy(ForwardType.VELOCITY, forward_inputs=inputs, noise=noise, time=time)
        loss = (evaluation.velocity - evaluation.target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return policy


@pytest.mark.parametrize("method", ["flow_ode", "flow_sde"])
def test_samples_match_the_mixture_that_the_flow_was_trained_on(method: str) -> None:
    policy = train_on_a_mixture(noise_method=method, num_denoise_steps=20, noise_level=0.7)
    for sign in (-1.0, 1.0):
        obs = {"states": torch.full((2000, 1), sign)}
        actions, _ = policy.predict_action_batch(obs, mode="train", generator=torch.Generator().manual_seed(5))
        samples = sign * actions[:, 0]
        nearest = torch.cdist(samples, CENTRES).argmin(1)
        assert 0.4 < float(nearest.float().mean()) < 0.6
        for mode, centre in enumerate(CENTRES):
            offsets = samples[nearest == mode] - centre
            assert float(offsets.mean(0).abs().max()) < 0.1
            assert float((offsets.norm(dim=1) < 4 * SPREAD).float().mean()) > 0.9
            assert float(offsets.std(0).max()) < 2 * SPREAD


def test_the_density_of_sampled_steps_has_the_gradient_of_their_noise() -> None:
    policy = build(noise_method="flow_noise").double()
    states = observations()["states"].double()
    noise = torch.randn(ROWS, STEPS + 1, CHUNK, DIM, dtype=torch.float64)
    _, logprobs = policy.flow.sample(states, noise)
    log_stds = policy.flow.noise.log_stds(states)
    expected = Normal(torch.zeros_like(log_stds), log_stds.exp()).log_prob(noise[:, 1:] * log_stds.exp()).sum(1)
    torch.testing.assert_close(logprobs, expected)
    parameters = list(policy.flow.noise.head.parameters())
    found, right = (torch.autograd.grad(output.sum(), parameters) for output in (logprobs, -log_stds.sum(1)))
    torch.testing.assert_close(found, right)
