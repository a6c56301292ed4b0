"""Flow policies on images: what they see, that both are learned from, and that states alone need no images."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.errors import ConfigError
from rlinf.models.control.cnn_policy import ImageEncoder
from rlinf.models.control.encoder import StateEncoder
from tests.unit.models.image_policies import ROWS, flow_policy, observations


@pytest.mark.parametrize("keys", [{}, {"add_q_head": True}, {"add_value_head": True}, {"obs_dim": 0}])
def test_actions_follow_from_every_camera_and_the_state(keys: dict[str, Any]) -> None:
    model, obs = flow_policy(**keys), observations()
    actions, report = model.predict_action_batch(obs, mode="eval")
    assert actions.shape == (ROWS, 1, 2)
    seen = {"main_images", "wrist_images"} | ({"states"} if keys.get("obs_dim", 3) else set())
    assert seen <= report.forward_inputs.keys()
    for name in sorted(seen):
        other = {**obs, name: observations(seed=9)[name]}
        changed, _ = model.predict_action_batch(other, mode="eval")
        assert bool((changed != actions).any()), name
    if "states" not in seen:
        changed, _ = model.predict_action_batch({**obs, "states": obs["states"] + 1}, mode="eval")
        assert torch.equal(changed, actions)


def test_recorded_inputs_have_the_log_probabilities_of_what_was_done() -> None:
    model = flow_policy(add_q_head=True)
    _, report = model.predict_action_batch(observations(), mode="train", generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(model(forward_inputs=report.forward_inputs).logprobs, report.logprobs)


def test_critics_train_the_cameras_and_the_flow_does_not() -> None:
    model, obs = flow_policy(add_q_head=True), observations()
    inputs = model.observe(obs)
    noise = torch.randn(ROWS, *model.noise_shape)
    model.encoder.requires_grad_(True)
    action, _ = model.sample(model.encoder(inputs).detach(), noise)
    action.sum().backward()
    assert all(parameter.grad is None for parameter in model.encoder.parameters())
    model.critic(model.encoder(inputs), action.detach()).sum().backward()
    assert all(parameter.grad is not None for parameter in model.encoder.parameters())


def test_images_are_shifted_where_they_are_trained_on() -> None:
    model, obs = flow_policy(add_q_head=True, random_shift=3), observations()
    inputs = model.observe(obs)
    shifted = model.augment(inputs, torch.Generator().manual_seed(0))
    assert torch.equal(shifted["states"], inputs["states"])
    assert not torch.equal(shifted["main_images"], inputs["main_images"])


def test_without_cameras_the_states_are_all_it_sees() -> None:
    assert isinstance(flow_policy(image_keys=[]).encoder, StateEncoder)
    assert isinstance(flow_policy().encoder, ImageEncoder)


@pytest.mark.parametrize(
    ("recipe", "change", "told"),
    [
        ("gym_pendulum_sac_flow", "actor.model.latent_dim=8", r"latent_dim: .*without actor\.model\.image_keys"),
        ("gym_pendulum_sac_flow", "actor.model.obs_dim=0", r"actor\.model\.obs_dim: .* the policy sees nothing"),
        ("pixel_reach_sac_flow_cnn", "actor.model.image_size=[4, 4]", r"actor\.model\.image_size: received"),
        ("pixel_reach_sac_flow_cnn", "actor.model.image_keys=[a, a]", r"actor\.model\.image_keys: received"),
    ],
)
def test_keys_of_cameras_need_cameras(recipe: str, change: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        validate_cfg(load_recipe(recipe, [change]))
