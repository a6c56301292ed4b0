import math

import pytest
import torch
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from rlinf.config.schema.model import MLPPolicyConfig
from rlinf.models import get_model
from rlinf.models.base_policy import ForwardType
from rlinf.models.trainable import TrainableModel

ROWS, CHUNK, DIM = 6, 3, 2


def policy(**keys: float | bool) -> TrainableModel:
    torch.manual_seed(0)
    cfg = MLPPolicyConfig(
        model_type="mlp_policy",
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


def test_log_probabilities_are_those_of_the_squashed_sample() -> None:
    model, obs = policy(action_scale=2.0), observations()
    actions, report = model.predict_action_batch(obs, mode="train", generator=torch.Generator().manual_seed(2))
    sample = report.forward_inputs["action"]
    assert sample.shape == report.logprobs.shape == (ROWS, CHUNK, DIM)
    assert torch.equal(actions, 2.0 * sample)
    mean, log_std = model._gaussian(model.encoder(obs))
    reference = TransformedDistribution(Normal(mean, log_std.exp()), [TanhTransform(cache_size=0)])
    torch.testing.assert_close(report.logprobs, reference.log_prob(sample), atol=1e-4, rtol=1e-4)
    assert Independent(reference, 2).log_prob(sample).shape == (ROWS,)
    again = model.default_forward(report.forward_inputs).logprobs
    torch.testing.assert_close(again, report.logprobs, atol=1e-4, rtol=1e-4)


def test_evaluation_acts_by_the_squashed_mean_and_draws_nothing() -> None:
    model, obs = policy(), observations()
    before = torch.get_rng_state()
    actions, _ = model.predict_action_batch(obs, mode="eval")
    assert torch.equal(before, torch.get_rng_state())
    torch.testing.assert_close(actions, torch.tanh(model._gaussian(model.encoder(obs))[0]))


@pytest.mark.parametrize("initial", [-3.0, 0.0, 1.0])
def test_the_standard_deviation_starts_as_told_and_depends_on_the_state(initial: float) -> None:
    _, log_std = policy(initial_log_std=initial)._gaussian(observations()["states"])
    assert float((log_std - initial).abs().max()) < 0.1
    assert float(log_std.std(0).max()) > 0


def test_far_samples_have_finite_log_probabilities_and_gradients() -> None:
    model = policy()
    noise = torch.full((ROWS, CHUNK, DIM), 40.0)
    evaluation = model(ForwardType.ACTOR, inputs=observations(), noise=noise)
    evaluation.logprobs.sum().backward()
    assert torch.isfinite(evaluation.logprobs).all()
    assert all(torch.isfinite(p.grad).all() for p in model.policy_head.parameters())


def test_critics_are_independent_and_start_apart() -> None:
    model = policy(num_q_heads=4)
    states, action = observations()["states"], torch.zeros(ROWS, CHUNK, DIM)
    q = model.critic(states, action)
    assert q.shape == (ROWS, 4)
    assert len({round(float(value), 6) for value in q[0]}) == 4
    q[:, 1].sum().backward()
    for parameter in model.critic.parameters():
        assert [bool(parameter.grad[head].abs().sum() > 0) for head in range(4)] == [False, True, False, False]


def test_the_critic_pass_values_the_next_action_by_the_target_without_gradient() -> None:
    model, obs = policy(), observations()
    after, noise = {"states": obs["states"] + 1}, torch.randn(ROWS, CHUNK, DIM)
    with torch.no_grad():
        model.target_critic.layers[-1].bias += 7.0
    action = torch.zeros(ROWS, CHUNK, DIM)
    evaluation = model(ForwardType.CRITIC, inputs=obs, action=action, next_inputs=after, noise=noise)
    present = model(ForwardType.ACTOR, inputs=after, noise=noise)
    torch.testing.assert_close(evaluation.next_q, present.q.detach() + 7.0)
    torch.testing.assert_close(evaluation.next_logprobs, present.logprobs.detach())
    torch.testing.assert_close(evaluation.q, model.critic(obs["states"], action))
    assert not evaluation.next_q.requires_grad
    assert not evaluation.next_logprobs.requires_grad


def test_inference_is_sent_the_policy_alone() -> None:
    model = policy(normalize_obs=True)
    sent = {name.split(".")[0] for name in model.state_dict() if not model.is_training_only(name)}
    assert sent == {"policy_head", "encoder"}
    learned = {name.split(".")[0] for name, p in model.named_parameters() if p.requires_grad}
    assert learned == {"policy_head", "critic"}
    assert math.isclose(float(model.predict_values(observations()).shape[1]), 1.0)


def test_samples_and_their_densities_have_the_gradient_of_the_reparameterised_sample() -> None:
    model, obs = policy().double(), {"states": observations()["states"].double()}
    noise = torch.randn(ROWS, CHUNK, DIM, dtype=torch.float64)
    action, logprobs = model.sample(obs["states"], noise)
    mean, log_std = model._gaussian(obs["states"])
    raw = mean + noise * log_std.exp()
    torch.testing.assert_close(action, raw.tanh())
    expected = Normal(mean, log_std.exp()).log_prob(raw) - (1 - raw.tanh().square()).log()
    torch.testing.assert_close(logprobs, expected)
    weights = torch.randn(ROWS, CHUNK, DIM, dtype=torch.float64)
    parameters = list(model.policy_head.parameters())
    for actual, wanted in ((action, raw.tanh()), (logprobs, expected)):
        found, right = (
            torch.autograd.grad((weights * output).sum(), parameters, retain_graph=True) for output in (actual, wanted)
        )
        torch.testing.assert_close(found, right)


def test_the_entropy_is_estimated_as_minus_the_log_probability() -> None:
    model, obs = policy(), observations()
    _, report = model.predict_action_batch(obs, mode="train", generator=torch.Generator().manual_seed(2))
    evaluation = model.default_forward(report.forward_inputs)
    torch.testing.assert_close(evaluation.entropy, -evaluation.logprobs)


def test_the_losses_are_given_the_density_of_a_whole_chunk() -> None:
    model, obs, noise = policy(), observations(), torch.randn(ROWS, CHUNK, DIM)
    evaluation = model(ForwardType.ACTOR, inputs=obs, noise=noise)
    _, logprobs = model.sample(obs["states"], noise)
    torch.testing.assert_close(evaluation.logprobs, logprobs.sum((1, 2)))


def test_the_value_is_that_of_the_most_pessimistic_critic() -> None:
    model, obs = policy(num_q_heads=3), observations()
    q = model.critic(obs["states"], model.act(obs["states"]))
    torch.testing.assert_close(model.predict_values(obs), q.min(1, keepdim=True).values.detach())
