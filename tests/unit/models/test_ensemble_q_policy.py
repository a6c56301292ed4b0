"""Critics by ``q_head_type``, and the policies on top of them that ``test_squashed_mlp_policy`` does not cover."""

import pytest
import torch
from torch.nn import functional

from rlinf.config.schema.model import MLPPolicyConfig
from rlinf.models import get_model
from rlinf.models.base_policy import ForwardType

ROWS, CHUNK, DIM = 6, 3, 2


def policy(**keys):
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


def normal(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def transitions():
    return {
        "inputs": {"states": normal(1, ROWS, 5)},
        "action": normal(2, ROWS, CHUNK, DIM).tanh(),
        "next_inputs": {"states": normal(3, ROWS, 5) + 1.0},
        "noise": normal(4, ROWS, CHUNK, DIM),
    }


def batch_normalized_values(critic, head, rows):
    """Value rows [N, F + C * A] by one critic, layer by layer, with the moments of these rows."""
    layers = list(critic.layers)
    x = rows
    for norm, linear in zip(layers[0::3], layers[1::3], strict=True):
        x = functional.batch_norm(x, None, None, norm.weight[head, 0], norm.bias[head, 0], True, eps=1e-3)
        x = x @ linear.weight[head] + linear.bias[head, 0]
        x = torch.tanh(x) if linear is not layers[-1] else x
    return x[:, 0]


def test_crossq_values_both_states_in_one_batch_and_has_no_targets():
    model, batch = policy(q_head_type="crossq"), transitions()
    next_action, _ = model.sample(batch["next_inputs"]["states"], batch["noise"])
    now = torch.cat([batch["inputs"]["states"], batch["action"].flatten(1)], 1)
    then = torch.cat([batch["next_inputs"]["states"], next_action.flatten(1)], 1)
    expected = [batch_normalized_values(model.critic, head, torch.cat([now, then])) for head in (0, 1)]
    evaluation = model(ForwardType.CRITIC, **batch)
    for head in (0, 1):
        torch.testing.assert_close(evaluation.q[:, head], expected[head][:ROWS], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(evaluation.next_q[:, head], expected[head][ROWS:], atol=1e-5, rtol=1e-4)
    assert evaluation.q.requires_grad
    assert not evaluation.next_q.requires_grad
    assert model.targets() == []
    assert not [name for name in model.state_dict() if name.startswith("target")]


def test_crossq_moments_follow_the_critics_updates_alone():
    model, batch = policy(q_head_type="crossq"), transitions()
    updates = model.critic.layers[0].updates
    model(ForwardType.CRITIC, **batch)
    assert int(updates) == 1
    seen = model.critic.layers[0].mean[0, 0, :5]
    both = torch.cat([batch["inputs"]["states"], batch["next_inputs"]["states"]])
    torch.testing.assert_close(seen, 0.01 * both.mean(0), atol=1e-6, rtol=1e-4)
    first = model(ForwardType.ACTOR, inputs=batch["inputs"], noise=batch["noise"]).q
    fewer = model(ForwardType.ACTOR, inputs={"states": batch["inputs"]["states"][:2]}, noise=batch["noise"][:2]).q
    torch.testing.assert_close(first[:2], fewer)  # a row's value does not depend on the others
    model.predict_values({"states": batch["inputs"]["states"]})
    assert int(updates) == 1


@pytest.mark.parametrize("q_head_type", ["default", "layer_norm", "crossq"])
def test_chosen_critics_alone_value_the_next_actions(q_head_type):
    model, batch = policy(q_head_type=q_head_type, num_q_heads=5), transitions()
    everyone = model(ForwardType.CRITIC, **batch)
    some = model(ForwardType.CRITIC, **batch, members=torch.tensor([4, 1]))
    torch.testing.assert_close(some.next_q, everyone.next_q[:, [4, 1]])
    assert some.q.shape == (ROWS, 5)


def test_layer_norm_stands_before_each_activation():
    layers = [type(layer).__name__ for layer in policy(q_head_type="layer_norm").critic.layers]
    assert layers == [*["EnsembleLinear", "EnsembleLayerNorm", "Tanh"] * 2, "EnsembleLinear"]


def test_a_deterministic_policy_explores_by_noise_in_training_only():
    model, obs = policy(deterministic=True, exploration_noise=0.5, action_scale=2.0), transitions()["inputs"]
    greedy, _ = model.predict_action_batch(obs, mode="eval")
    torch.testing.assert_close(greedy, 2.0 * model.act(obs["states"]))
    actions, report = model.predict_action_batch(obs, mode="train", generator=torch.Generator().manual_seed(4))
    expected = (greedy / 2.0 + 0.5 * normal(4, ROWS, CHUNK, DIM)).clamp(-1, 1)
    torch.testing.assert_close(report.forward_inputs["action"], expected)
    torch.testing.assert_close(actions, 2.0 * expected)
    assert model.default_forward(report.forward_inputs).logprobs.shape == report.logprobs.shape


def test_a_deterministic_policy_is_valued_by_smoothed_target_actions():
    model, batch = policy(deterministic=True), transitions()
    with torch.no_grad():
        model.target_policy_head[-1].bias += 0.3
        model.target_critic.layers[-1].bias += 7.0
    target = torch.atanh(model.act(batch["next_inputs"]["states"])).flatten(1) + 0.3
    smoothed = (torch.tanh(target).view(ROWS, CHUNK, DIM) + batch["noise"]).clamp(-1, 1)
    expected = model.critic(batch["next_inputs"]["states"], smoothed) + 7.0
    evaluation = model(ForwardType.CRITIC, **batch)
    torch.testing.assert_close(evaluation.next_q, expected.detach(), atol=1e-5, rtol=1e-4)
    assert evaluation.next_logprobs is None
    present = model(ForwardType.ACTOR, inputs=batch["inputs"], noise=batch["noise"])
    torch.testing.assert_close(present.q, model.critic(batch["inputs"]["states"], model.act(batch["inputs"]["states"])))
    sent = {name.split(".")[0] for name in model.state_dict() if not model.is_training_only(name)}
    assert "policy_head" in sent
    assert not sent & {"critic", "target_critic", "target_policy_head"}


@pytest.mark.parametrize("deterministic", [False, True])
def test_actions_of_others_are_brought_within_the_bounds_of_the_policy(deterministic):
    actions = torch.tensor([1.0, -4.0, 3.0]).view(1, 3, 1).expand(2, 3, DIM)
    obs = {"states": normal(1, 2, 5)}
    inputs = policy(deterministic=deterministic, action_scale=2.0).forward_inputs_of(obs, actions)
    assert inputs["action"][0, :, 0].tolist() == [0.5, -1.0, 1.0]
    assert torch.equal(inputs["states"], obs["states"])
