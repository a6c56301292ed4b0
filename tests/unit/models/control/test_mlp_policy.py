"""``mlp_policy``: what is reported is recomputed; evaluation draws nothing."""

import pytest
import torch
from state_policies import build

from rlinf.config.schema.model import MLPPolicyConfig
from rlinf.errors import RegistryError
from rlinf.models import get_model, register_model


@pytest.mark.parametrize("discrete", [False, True])
def test_default_forward_recomputes_the_reported_logprobs(discrete: bool) -> None:
    policy = build(num_action_chunks=4, discrete=discrete, add_value_head=True, normalize_obs=True)
    obs = {"states": torch.randn(5, 3)}
    actions, output = policy.predict_action_batch(obs, mode="train", generator=torch.Generator().manual_seed(1))
    evaluation = policy(forward_inputs=output.forward_inputs)
    assert actions.shape == ((5, 4) if discrete else (5, 4, 2))
    assert output.logprobs.shape == ((5, 4, 1) if discrete else (5, 4, 2))
    torch.testing.assert_close(evaluation.logprobs, output.logprobs)
    torch.testing.assert_close(evaluation.values, output.values)
    assert evaluation.entropy.shape == output.logprobs.shape


@pytest.mark.parametrize("discrete", [False, True])
def test_evaluation_is_greedy_and_draws_no_random_number(discrete: bool) -> None:
    policy = build(discrete=discrete)
    obs = {"states": torch.randn(5, 3)}
    before = torch.get_rng_state()
    first, _ = policy.predict_action_batch(obs, mode="eval")
    second, _ = policy.predict_action_batch(obs, mode="eval")
    assert torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


def test_training_actions_depend_on_the_generator_alone() -> None:
    policy = build()
    obs = {"states": torch.randn(5, 3)}
    draws = [
        policy.predict_action_batch(obs, mode="train", generator=torch.Generator().manual_seed(s))[0] for s in (1, 1, 2)
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_action_scale_reaches_the_environment_but_not_the_logprob() -> None:
    policy = build(action_scale=2.0)
    actions, output = policy.predict_action_batch({"states": torch.randn(4, 3)}, mode="train")
    torch.testing.assert_close(actions, 2.0 * output.forward_inputs["action"])


def test_value_parameters_are_those_of_the_value_head() -> None:
    policy = build(add_value_head=True)
    names = {name for name, _ in policy.named_parameters() if policy.is_value_parameter(name)}
    assert names == {f"value_head.{i}.{kind}" for i in (0, 2) for kind in ("weight", "bias")}


def test_an_unknown_model_type_is_answered_with_the_known_ones() -> None:
    cfg = MLPPolicyConfig(model_type="mpl_policy", obs_dim=3, action_dim=2)
    with pytest.raises(RegistryError, match="Did you mean 'mlp_policy'"):
        get_model(cfg)


def test_a_model_cannot_take_a_built_in_name() -> None:
    with pytest.raises(RegistryError, match="mlp_policy"):
        register_model("MLP_Policy", lambda cfg, num_values: get_model(cfg, num_values))


def test_recorded_actions_are_brought_into_the_units_of_the_policy() -> None:
    policy, obs = build(action_scale=4.0), {"states": torch.randn(2, 3)}
    actions = torch.tensor([[[2.0, -4.0]], [[0.0, 1.0]]])
    assert policy.forward_inputs_of(obs, actions)["action"].tolist() == [[[0.5, -1.0]], [[0.0, 0.25]]]
    chosen = torch.tensor([[1], [0]])
    assert torch.equal(build(discrete=True).forward_inputs_of(obs, chosen)["action"], chosen)
