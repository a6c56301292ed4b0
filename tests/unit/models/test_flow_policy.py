"""A flow learns a distribution, samples from it with and without noise in its steps, and knows the density of these."""

import math

import pytest
import torch
from torch.distributions import Normal

from rlinf.config.schema.model import FlowPolicyConfig
from rlinf.models import get_model
from rlinf.models.base_policy import ForwardType
from rlinf.models.velocity import _embed

ROWS, CHUNK, DIM, STEPS = 5, 3, 2, 4
NOISY = ["flow_sde", "flow_noise"]


def build(**keys):
    torch.manual_seed(0)
    keys = {"obs_dim": 6, "action_dim": DIM, "num_action_chunks": CHUNK, "hidden_dims": [16], **keys}
    return get_model(FlowPolicyConfig(model_type="flow_policy", **keys))


def observations(rows=ROWS):
    return {"states": torch.randn(rows, 6, generator=torch.Generator().manual_seed(1))}


def act(policy, mode="train", seed=2):
    return policy.predict_action_batch(observations(), mode=mode, generator=torch.Generator().manual_seed(seed))


def shake(policy):
    """Move the weights away from their start, at which velocities are almost 0."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return policy


@pytest.mark.parametrize("velocity", ["mlp", "gated"])
@pytest.mark.parametrize("method", NOISY)
def test_log_probabilities_of_the_chain_are_recomputed(method, velocity):
    policy = shake(build(noise_method=method, velocity=velocity, normalize_obs=True, add_value_head=True))
    actions, output = act(policy)
    assert actions.shape == output.logprobs.shape == (ROWS, CHUNK, DIM)
    assert output.forward_inputs["chain"].shape == (ROWS, STEPS + 1, CHUNK, DIM)
    evaluation = policy(forward_inputs=output.forward_inputs)
    torch.testing.assert_close(evaluation.logprobs, output.logprobs, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(evaluation.values, output.values)
    assert evaluation.entropy.shape == output.logprobs.shape


def test_steps_of_a_diffusion_follow_the_formula():
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


def test_learned_noise_starts_at_its_level_and_has_a_gradient():
    policy = build(noise_method="flow_noise", noise_level=0.2)
    _, output = act(policy)
    evaluation = policy(forward_inputs=output.forward_inputs)
    per_step = 0.5 * math.log(2 * math.pi * math.e) + math.log(0.2)
    torch.testing.assert_close(evaluation.entropy, torch.full((ROWS, CHUNK, DIM), STEPS * per_step), atol=0.3, rtol=0.0)
    evaluation.entropy.sum().backward()
    assert all(float(p.grad.abs().sum()) > 0 for p in policy.flow.noise.head[-1].parameters())


def test_without_noise_only_the_start_is_random():
    policy = shake(build(noise_method="flow_ode", action_scale=2.0))
    actions, output = act(policy)
    start = output.forward_inputs["chain"][:, 0]
    expected = policy.flow.integrate(observations()["states"], start)
    assert (expected.abs() > 1).any()
    torch.testing.assert_close(actions, 2.0 * expected.clamp(-1.0, 1.0))
    assert not output.logprobs.any()
    assert not torch.equal(actions, act(policy, seed=3)[0])


@pytest.mark.parametrize("method", ["flow_ode", *NOISY])
def test_evaluation_follows_the_velocity_from_zero_and_draws_nothing(method):
    policy = shake(build(noise_method=method))
    before = torch.get_rng_state()
    first, second = act(policy, "eval", 2)[0], act(policy, "eval", 3)[0]
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first, second)
    zeros = torch.zeros(ROWS, CHUNK, DIM)
    expected = policy.flow.integrate(observations()["states"], zeros)
    torch.testing.assert_close(first, expected.clamp(-1.0, 1.0) if method == "flow_ode" else expected)


def test_a_gated_step_is_one_of_a_gated_recurrent_unit():
    policy = build(velocity="gated")
    states, x = observations()["states"], torch.full((ROWS, CHUNK, DIM), 3.0)
    velocity = policy.flow.velocity(states, x, torch.zeros(ROWS))
    # Candidates start near 0 and gates almost open: the velocity leads back to 0.
    torch.testing.assert_close(velocity, -torch.sigmoid(torch.tensor(5.0)) * x, atol=0.2, rtol=0.0)


def test_the_velocity_pass_mixes_noise_and_actions():
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


CENTRES = torch.tensor([[0.5, 0.6], [-0.5, -0.2]])
SPREAD = 0.1


def train_on_a_mixture(**keys):
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
def test_samples_match_the_mixture_that_the_flow_was_trained_on(method):
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


def test_gate_and_candidate_of_a_recurrent_step():
    policy = shake(build(velocity="gated"))
    states, x, time = observations()["states"], torch.randn(ROWS, CHUNK, DIM), torch.rand(ROWS)
    network = policy.flow.network
    gate, candidate = network._output(states, x, time).view(ROWS, 2, CHUNK, DIM).unbind(1)
    expected = torch.sigmoid(gate) * (candidate - x)
    torch.testing.assert_close(network(states, x, time), expected)


def test_every_time_of_a_flow_is_told_from_every_other():
    times = torch.linspace(0.0, 1.0, 17)
    embedded = _embed(times)
    distances = torch.cdist(embedded, embedded) + torch.eye(17)
    assert float(distances.min()) > 0.1
    torch.testing.assert_close(embedded[0], torch.tensor([0.0] * 4 + [1.0] * 4))


def test_the_density_of_sampled_steps_has_the_gradient_of_their_noise():
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
