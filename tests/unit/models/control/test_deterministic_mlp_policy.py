"""A deterministic policy explores by noise, and is valued by smoothed target actions."""

import pytest
import torch
from q_transitions import CHUNK, DIM, ROWS, normal, policy, transitions

from rlinf.models.base_policy import ForwardType


def test_a_deterministic_policy_explores_by_noise_in_training_only() -> None:
    model, obs = policy(deterministic=True, exploration_noise=0.5, action_scale=2.0), transitions()["inputs"]
    greedy, _ = model.predict_action_batch(obs, mode="eval")
    torch.testing.assert_close(greedy, 2.0 * model.act(obs["states"]))
    actions, report = model.predict_action_batch(obs, mode="train", generator=torch.Generator().manual_seed(4))
    expected = (greedy / 2.0 + 0.5 * normal(4, ROWS, CHUNK, DIM)).clamp(-1, 1)
    torch.testing.assert_close(report.forward_inputs["action"], expected)
    torch.testing.assert_close(actions, 2.0 * expected)
    assert model.default_forward(report.forward_inputs).logprobs.shape == report.logprobs.shape


def test_a_deterministic_policy_is_valued_by_smoothed_target_actions() -> None:
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
def test_actions_of_others_are_brought_within_the_bounds_of_the_policy(deterministic: bool) -> None:
    actions = torch.tensor([1.0, -4.0, 3.0]).view(1, 3, 1).expand(2, 3, DIM)
    obs = {"states": normal(1, 2, 5)}
    inputs = policy(deterministic=deterministic, action_scale=2.0).forward_inputs_of(obs, actions)
    assert inputs["action"][0, :, 0].tolist() == [0.5, -1.0, 1.0]
    assert torch.equal(inputs["states"], obs["states"])
