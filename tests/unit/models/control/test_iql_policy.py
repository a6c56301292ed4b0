"""The policy of implicit Q-learning: what acts, what is valued, and which gradient goes where."""

from typing import Any

import pytest
import torch
from torch.distributions import Normal

from rlinf.config.schema.model import FlowPolicyConfig, MLPPolicyConfig
from rlinf.errors import AlgorithmError
from rlinf.models import get_model
from rlinf.models.base_policy import ForwardType
from rlinf.models.trainable import TrainableModel

OBS = {"states": torch.randn(6, 4, generator=torch.Generator().manual_seed(0))}
ACTIONS = torch.rand(6, 2, 3, generator=torch.Generator().manual_seed(1)) * 4 - 2


def make(**keys: float) -> TrainableModel:
    torch.manual_seed(0)
    defaults = {"add_q_head": True, "add_value_head": True, "action_scale": 2.0, "initial_log_std": -1.0}
    cfg = MLPPolicyConfig(
        model_type="mlp_policy", obs_dim=4, action_dim=3, num_action_chunks=2, hidden_dims=[8], **defaults | keys
    )
    return get_model(cfg)


def batch(policy: TrainableModel) -> tuple[Any, Any]:
    inputs = policy.forward_inputs_of(OBS, ACTIONS)
    return inputs.pop("action"), inputs


def test_recorded_actions_are_those_of_a_gaussian_in_the_units_of_the_policy() -> None:
    policy = make()
    mean, _ = policy.predict_action_batch(OBS, mode="eval")
    evaluation = policy(forward_inputs=policy.forward_inputs_of(OBS, ACTIONS))
    expected = Normal(mean / 2, torch.tensor(-1.0).exp()).log_prob(ACTIONS / 2)
    torch.testing.assert_close(evaluation.logprobs, expected)
    torch.testing.assert_close(evaluation.greedy, mean / 2)
    assert float(mean.abs().max()) <= 2.0


def test_exploration_draws_from_the_generator_it_is_given() -> None:
    policy = make()
    drawn = [
        policy.predict_action_batch(OBS, mode="train", generator=torch.Generator().manual_seed(seed))
        for seed in (1, 1, 2)
    ]
    assert torch.equal(drawn[0][0], drawn[1][0])
    assert not torch.equal(drawn[0][0], drawn[2][0])
    again = policy(forward_inputs=drawn[0][1].forward_inputs)
    torch.testing.assert_close(again.logprobs, drawn[0][1].logprobs)


def trained_by(loss: Any, policy: TrainableModel) -> set[str]:
    policy.zero_grad()
    loss.backward()
    return {name.split(".")[0] for name, p in policy.named_parameters() if p.grad is not None}


def test_each_loss_reaches_its_own_networks() -> None:
    policy = make()
    action, inputs = batch(policy)
    values = policy(ForwardType.CRITIC, inputs=inputs, action=action, next_inputs=inputs)
    torch.testing.assert_close(values.next_values, values.values)
    torch.testing.assert_close(values.target_q, values.q)  # a copy at the start
    assert trained_by(values.q.sum() + values.values.sum(), policy) == {"critic", "value_head"}
    advantage = policy(ForwardType.ACTOR, inputs=inputs, action=action)
    assert trained_by(advantage.logprobs.sum(), policy) == {"policy_head", "log_std"}
    torch.testing.assert_close(policy.predict_values(OBS).squeeze(-1), values.values)


def test_inference_needs_the_policy_alone() -> None:
    policy = make()
    kept = {name.split(".")[0] for name in policy.state_dict() if not policy.is_training_only(name)}
    assert kept == {"policy_head", "log_std"}
    critics = {name.split(".")[0] for name, _ in policy.named_parameters() if policy.is_critic_parameter(name)}
    assert critics == {"critic", "value_head"}


def test_a_policy_that_cannot_learn_from_recordings_says_so() -> None:
    flow = get_model(FlowPolicyConfig(model_type="flow_policy", obs_dim=5, action_dim=2, hidden_dims=[4]))
    with pytest.raises(AlgorithmError, match="does not implement forward_inputs_of"):
        flow.forward_inputs_of(OBS, ACTIONS)
    flow.recorded_inputs = lambda obs, actions: {"action": actions}
    assert flow.forward_inputs_of(OBS, ACTIONS) == {"action": ACTIONS}


def apart() -> TrainableModel:
    """A policy whose target critics have moved away from its critics."""
    policy = make()
    with torch.no_grad():
        policy.target_critic.layers[-1].bias += 7.0
    return policy


def test_values_and_advantages_follow_the_target_critics() -> None:
    policy = apart()
    action, inputs = batch(policy)
    q = policy.critic(inputs["states"], action).detach()
    for evaluation in (
        policy(ForwardType.CRITIC, inputs=inputs, action=action, next_inputs=inputs),
        policy(ForwardType.ACTOR, inputs=inputs, action=action),
    ):
        torch.testing.assert_close(evaluation.target_q, q + 7.0)
        assert not evaluation.target_q.requires_grad
    assert not any(parameter.requires_grad for parameter in policy.target_critic.parameters())


def test_what_follows_is_valued_in_the_next_state_and_gets_no_gradient() -> None:
    policy = make()
    action, inputs = batch(policy)
    after = {"states": inputs["states"] + 1.0}
    evaluation = policy(ForwardType.CRITIC, inputs=inputs, action=action, next_inputs=after)
    torch.testing.assert_close(evaluation.next_values.unsqueeze(-1), policy.predict_values(after))
    assert not torch.allclose(evaluation.next_values, evaluation.values)
    assert not evaluation.next_values.requires_grad
    assert evaluation.values.requires_grad


@pytest.mark.parametrize(("log_std", "bound"), [(-9.0, -5.0), (4.0, 2.0)])
def test_the_standard_deviation_stays_within_bounds(log_std: float, bound: float) -> None:
    evaluation = make(initial_log_std=log_std)(forward_inputs=make().forward_inputs_of(OBS, ACTIONS))
    entropy = Normal(0.0, torch.tensor(bound).exp()).entropy()
    torch.testing.assert_close(evaluation.entropy, entropy.expand(6, 2, 3))
