import math

import pytest
import torch

from rlinf.config.schema.model import MLPPolicyConfig
from rlinf.errors import RegistryError
from rlinf.models import get_model, register_model
from rlinf.models.normalizer import RunningNormalizer


def build(**keys):
    torch.manual_seed(0)
    cfg = MLPPolicyConfig(model_type="mlp_policy", obs_dim=3, action_dim=2, hidden_dims=[8], **keys)
    return get_model(cfg)


@pytest.mark.parametrize("discrete", [False, True])
def test_default_forward_recomputes_the_reported_logprobs(discrete):
    policy = build(num_action_chunks=4, discrete=discrete, add_value_head=True, normalize_obs=True)
    obs = {"states": torch.randn(5, 3)}
    actions, output = policy.predict_action_batch(obs, mode="train", generator=torch.Generator().manual_seed(1))
    evaluation = policy(forward_inputs=output.forward_inputs)
    assert actions.shape == ((5, 4) if discrete else (5, 4, 2))
    assert output.logprobs.shape == ((5, 4, 1) if discrete else (5, 4, 2))
    torch.testing.assert_close(evaluation.logprobs, output.logprobs)
    torch.testing.assert_close(evaluation.values, output.values)
    assert evaluation.entropy.shape == output.logprobs.shape


def test_gaussian_logprob_equals_torch_distributions():
    policy = build(initial_log_std=-0.5)
    _, output = policy.predict_action_batch({"states": torch.randn(6, 3)}, mode="train")
    mean = policy.policy_head(output.forward_inputs["states"]).view(6, 1, 2)
    normal = torch.distributions.Normal(mean, math.exp(-0.5))
    torch.testing.assert_close(output.logprobs, normal.log_prob(output.forward_inputs["action"]))
    evaluation = policy(forward_inputs=output.forward_inputs)
    torch.testing.assert_close(evaluation.entropy, normal.entropy().expand(6, 1, 2))


@pytest.mark.parametrize("discrete", [False, True])
def test_evaluation_is_greedy_and_draws_no_random_number(discrete):
    policy = build(discrete=discrete)
    obs = {"states": torch.randn(5, 3)}
    before = torch.get_rng_state()
    first, _ = policy.predict_action_batch(obs, mode="eval")
    second, _ = policy.predict_action_batch(obs, mode="eval")
    assert torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


def test_training_actions_depend_on_the_generator_alone():
    policy = build()
    obs = {"states": torch.randn(5, 3)}
    draws = [
        policy.predict_action_batch(obs, mode="train", generator=torch.Generator().manual_seed(s))[0] for s in (1, 1, 2)
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_action_scale_reaches_the_environment_but_not_the_logprob():
    policy = build(action_scale=2.0)
    actions, output = policy.predict_action_batch({"states": torch.randn(4, 3)}, mode="train")
    torch.testing.assert_close(actions, 2.0 * output.forward_inputs["action"])


def test_statistics_do_not_depend_on_how_data_is_split_over_ranks():
    data = torch.randn(40, 3, dtype=torch.float64) * 3 + 5
    whole, split = RunningNormalizer(3, 10.0), RunningNormalizer(3, 10.0)
    for part in data.split(20):
        whole.update(part, lambda x: x)
    # Two ranks, simulated: what one contributes is added to the other's share by the reduction.
    for part in data.split(20):
        mine, other = part[:7], part[7:]
        calls = iter(
            [
                lambda x, other=other: x + torch.cat([torch.tensor([13.0]), other.sum(0)]),
                lambda x, part=part, other=other: x + ((other - part.mean(0)) ** 2).sum(0),
            ]
        )
        split.update(mine, lambda x, calls=calls: next(calls)(x))
    torch.testing.assert_close(whole.mean, data.mean(0))
    torch.testing.assert_close(whole.var, data.var(0, unbiased=False))
    torch.testing.assert_close(split.mean, whole.mean)
    torch.testing.assert_close(split.var, whole.var)


def test_statistics_travel_in_the_state_dict():
    policy, other = build(normalize_obs=True), build(normalize_obs=True)
    policy.update_statistics({"states": torch.randn(10, 3) + 4}, torch.ones(10, dtype=torch.bool), lambda x: x)
    other.load_state_dict(policy.state_dict())
    assert torch.equal(other.encoder.normalizer.mean, policy.encoder.normalizer.mean)
    assert other.encoder.normalizer.count == 10


def test_only_valid_rows_enter_the_statistics():
    policy = build(normalize_obs=True)
    states = torch.cat([torch.zeros(3, 3), torch.full((2, 3), 1e6)])
    policy.update_statistics({"states": states}, torch.tensor([True, True, True, False, False]), lambda x: x)
    assert policy.encoder.normalizer.mean.abs().max() == 0


def test_value_parameters_are_those_of_the_value_head():
    policy = build(add_value_head=True)
    names = {name for name, _ in policy.named_parameters() if policy.is_value_parameter(name)}
    assert names == {f"value_head.{i}.{kind}" for i in (0, 2) for kind in ("weight", "bias")}


def test_an_unknown_model_type_is_answered_with_the_known_ones():
    cfg = MLPPolicyConfig(model_type="mpl_policy", obs_dim=3, action_dim=2)
    with pytest.raises(RegistryError, match="Did you mean 'mlp_policy'"):
        get_model(cfg)


def test_a_model_cannot_take_a_built_in_name():
    with pytest.raises(RegistryError, match="mlp_policy"):
        register_model("MLP_Policy", lambda cfg, num_values: None)


def categorical(policy, obs):
    """The distribution of discrete actions [B, C], with weights that prefer some of them."""
    with torch.no_grad():
        policy.policy_head[-1].bias.copy_(torch.linspace(-1.0, 1.5, len(policy.policy_head[-1].bias)))
    logits = policy.policy_head(obs["states"]).view(len(obs["states"]), policy.chunk, -1)
    return torch.distributions.Categorical(logits=logits)


def test_discrete_actions_follow_the_categorical_distribution():
    policy, obs = build(discrete=True, num_action_chunks=3), {"states": torch.randn(4, 3)}
    expected = categorical(policy, obs)
    greedy, output = policy.predict_action_batch(obs, mode="eval")
    assert torch.equal(greedy, expected.probs.argmax(-1))
    evaluation = policy(forward_inputs=output.forward_inputs)
    torch.testing.assert_close(evaluation.entropy, expected.entropy().unsqueeze(-1))
    torch.testing.assert_close(output.logprobs, expected.log_prob(greedy).unsqueeze(-1))
    many = {"states": obs["states"][:1].expand(20_000, 3)}
    before = torch.get_rng_state()
    actions, _ = policy.predict_action_batch(many, mode="train", generator=torch.Generator().manual_seed(1))
    again, _ = policy.predict_action_batch(many, mode="train", generator=torch.Generator().manual_seed(1))
    assert torch.equal(actions, again)
    assert torch.equal(before, torch.get_rng_state())
    shares = torch.nn.functional.one_hot(actions, 2).float().mean(0)
    torch.testing.assert_close(shares, expected.probs[0], atol=0.02, rtol=0.0)


def test_recorded_actions_are_brought_into_the_units_of_the_policy():
    policy, obs = build(action_scale=4.0), {"states": torch.randn(2, 3)}
    actions = torch.tensor([[[2.0, -4.0]], [[0.0, 1.0]]])
    assert policy.forward_inputs_of(obs, actions)["action"].tolist() == [[[0.5, -1.0]], [[0.0, 0.25]]]
    chosen = torch.tensor([[1], [0]])
    assert torch.equal(build(discrete=True).forward_inputs_of(obs, chosen)["action"], chosen)


def test_normalised_observations_are_cut_off():
    normalizer = RunningNormalizer(2, 3.0)
    normalizer.update(torch.tensor([[0.0, 1.0], [2.0, 5.0]], dtype=torch.float64), lambda x: x)
    found = normalizer(torch.tensor([[2.0, 3.0], [50.0, -50.0]]))
    torch.testing.assert_close(found, torch.tensor([[1.0, 0.0], [3.0, -3.0]]))
