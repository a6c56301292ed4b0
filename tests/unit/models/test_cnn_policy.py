"""``cnn_policy``: encoders, augmentation, and the heads it shares with ``mlp_policy``."""

import pytest
import torch

from rlinf.config.registries import encoders
from rlinf.config.schema.model import CNNPolicyConfig
from rlinf.errors import EnvironmentFailure
from rlinf.models import get_model
from rlinf.models.base_policy import ForwardType
from rlinf.models.cnn_policy import random_shift

ROWS, DIM, SIZE = 4, 2, 20


def policy(**keys):
    torch.manual_seed(0)
    defaults = {"image_keys": ["main_images", "wrist_images"], "image_size": [SIZE, 24], "obs_dim": 3, "latent_dim": 8}
    return get_model(CNNPolicyConfig(model_type="cnn_policy", action_dim=DIM, hidden_dims=[16], **{**defaults, **keys}))


def observations(seed=1):
    generator = torch.Generator().manual_seed(seed)
    images = {
        key: torch.randint(0, 256, (ROWS, SIZE, 24, 3), dtype=torch.uint8, generator=generator)
        for key in ("main_images", "wrist_images")
    }
    return {"states": torch.randn(ROWS, 3, generator=generator), **images, "task_descriptions": ["reach"] * ROWS}


@pytest.mark.parametrize("keys", [{"discrete": True}, {"num_action_chunks": 3}, {"add_q_head": True}])
@pytest.mark.parametrize("obs_dim", [0, 3])
def test_default_forward_recomputes_what_was_reported(keys, obs_dim):
    model, obs = policy(obs_dim=obs_dim, **keys), observations()
    _, report = model.predict_action_batch(obs, mode="train", generator=torch.Generator().manual_seed(2))
    again = model(forward_inputs=report.forward_inputs)
    torch.testing.assert_close(again.logprobs, report.logprobs, atol=1e-4, rtol=1e-4)
    assert ("states" in report.forward_inputs) == (obs_dim > 0)
    assert report.forward_inputs["wrist_images"].dtype == torch.uint8


@pytest.mark.parametrize("key", ["main_images", "wrist_images", "states"])
def test_every_camera_and_the_state_matter(key):
    model, obs = policy(add_value_head=True), observations()
    before = model.predict_values(obs)
    obs[key] = observations(seed=5)[key]
    assert (model.predict_values(obs) - before).abs().min() > 1e-6


@pytest.mark.parametrize("encoder", encoders.names())
def test_every_encoder_learns_and_treats_rows_alone(encoder):
    model, obs = policy(encoder=encoder, add_value_head=True, image_keys=["main_images"]), observations()
    values = model(
        forward_inputs={**model.encoder.observe(obs, model.device), "action": torch.zeros(ROWS, 1, DIM)}
    ).values
    values.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.encoder.parameters())
    alone = model.predict_values({key: value[1:2] for key, value in obs.items()})
    torch.testing.assert_close(alone, values[1:2].detach(), atol=1e-5, rtol=1e-4)


def test_the_critics_alone_train_the_encoder():
    model, obs = policy(add_q_head=True), observations()
    inputs, noise = model.observe(obs), torch.randn(ROWS, 1, DIM)
    model(ForwardType.ACTOR, inputs=inputs, noise=noise).q.sum().backward()
    assert all(p.grad is None for p in model.encoder.parameters())
    model(ForwardType.CRITIC, inputs=inputs, action=noise.tanh(), next_inputs=inputs, noise=noise).q.sum().backward()
    assert all(p.grad is not None for p in model.encoder.parameters())
    critic = {name.split(".")[0] for name, _ in model.named_parameters() if model.is_critic_parameter(name)}
    assert critic == {"critic", "encoder"}
    assert {name.split(".")[0] for name in model.state_dict() if not model.is_training_only(name)} == {
        "policy_head",
        "encoder",
    }


def test_random_shift_moves_each_image_as_a_whole_and_repeats_its_border():
    rows, columns = torch.meshgrid(torch.arange(6), torch.arange(8), indexing="ij")
    image = torch.stack([rows, columns, torch.full_like(rows, 7)], -1).to(torch.uint8)
    shifted = random_shift(image.expand(500, -1, -1, -1), 2, torch.Generator().manual_seed(0)).int()
    down, right = shifted[:, 3, 4, 0] - 3, shifted[:, 3, 4, 1] - 4
    assert {(int(d), int(r)) for d, r in zip(down, right, strict=True)} == {
        (d, r) for d in range(-2, 3) for r in range(-2, 3)
    }
    expected_rows = (torch.arange(6) + down[:, None]).clamp(0, 5)
    expected_columns = (torch.arange(8) + right[:, None]).clamp(0, 7)
    assert torch.equal(shifted[..., 0], expected_rows[:, :, None].expand(-1, -1, 8))
    assert torch.equal(shifted[..., 1], expected_columns[:, None, :].expand(-1, 6, -1))
    assert (shifted[..., 2] == 7).all()


def test_augmentation_depends_on_the_generator_alone_and_leaves_states():
    model = policy(add_q_head=True, random_shift=3)
    inputs = model.observe(observations())
    first, same, other = (model.augment(inputs, torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    for key in ("main_images", "wrist_images"):
        assert torch.equal(first[key], same[key])
        assert not torch.equal(first[key], other[key])
    assert torch.equal(first["states"], inputs["states"])
    assert policy(add_q_head=True).augment(inputs, torch.Generator()) is inputs


@pytest.mark.parametrize(
    ("obs", "words"),
    [
        ({"states": torch.zeros(1, 3)}, "no such key"),
        ({"states": torch.zeros(1, 3), "main_images": torch.zeros(1, 3, 20, 24)}, "float32"),
    ],
)
def test_an_environment_without_such_images_is_an_error(obs, words):
    with pytest.raises(EnvironmentFailure, match=words) as failure:
        policy().predict_action_batch(obs, mode="eval")
    assert "image_keys" in str(failure.value)


def test_stacked_frames_are_more_channels():
    model, obs = policy(num_frames=2), observations()
    for key in ("main_images", "wrist_images"):
        obs[key] = torch.cat([obs[key], obs[key].flip(1)], -1)
    actions, _ = model.predict_action_batch(obs, mode="eval")
    assert actions.shape == (ROWS, 1, DIM)


def test_pixels_are_centred_and_keep_their_places():
    encoder = policy().encoder.cameras["main_images"]
    seen = []
    encoder.backbone.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    images = torch.zeros(1, SIZE, 24, 3, dtype=torch.uint8)
    images[0, 2, 5, 1] = 255
    encoder(images)
    (pixels,) = seen
    assert pixels.shape == (1, 3, SIZE, 24)
    assert pixels[0, 1, 2, 5] == 0.5
    assert (pixels == 0.5).sum() == 1
    assert (pixels == -0.5).sum() == pixels.numel() - 1
