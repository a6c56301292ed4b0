"""Distributions of actions against those of PyTorch."""

import math

import torch
import torch.distributions
from state_policies import build

from rlinf.models.trainable import TrainableModel


def test_gaussian_logprob_equals_torch_distributions() -> None:
    policy = build(initial_log_std=-0.5)
    _, output = policy.predict_action_batch({"states": torch.randn(6, 3)}, mode="train")
    mean = policy.policy_head(output.forward_inputs["states"]).view(6, 1, 2)
    normal = torch.distributions.Normal(mean, math.exp(-0.5))
    torch.testing.assert_close(output.logprobs, normal.log_prob(output.forward_inputs["action"]))
    evaluation = policy(forward_inputs=output.forward_inputs)
    torch.testing.assert_close(evaluation.entropy, normal.entropy().expand(6, 1, 2))


def categorical(policy: TrainableModel, obs: dict[str, torch.Tensor]) -> torch.distributions.Categorical:
    """The distribution of discrete actions [B, C], with weights that prefer some of them."""
    with torch.no_grad():
        policy.policy_head[-1].bias.copy_(torch.linspace(-1.0, 1.5, len(policy.policy_head[-1].bias)))
    logits = policy.policy_head(obs["states"]).view(len(obs["states"]), policy.chunk, -1)
    return torch.distributions.Categorical(logits=logits)


def test_discrete_actions_follow_the_categorical_distribution() -> None:
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
