"""Cameras and state become features; images are shifted as a whole."""

import pytest
import torch
from image_policies import DIM, ROWS, SIZE, observations, policy

from rlinf.models.control.cnn_policy import random_shift


@pytest.mark.parametrize("key", ["main_images", "wrist_images", "states"])
def test_every_camera_and_the_state_matter(key: str) -> None:
    model, obs = policy(add_value_head=True), observations()
    before = model.predict_values(obs)
    obs[key] = observations(seed=5)[key]
    assert (model.predict_values(obs) - before).abs().min() > 1e-6


def test_random_shift_moves_each_image_as_a_whole_and_repeats_its_border() -> None:
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


def test_augmentation_depends_on_the_generator_alone_and_leaves_states() -> None:
    model = policy(add_q_head=True, random_shift=3)
    inputs = model.observe(observations())
    first, same, other = (model.augment(inputs, torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    for key in ("main_images", "wrist_images"):
        assert torch.equal(first[key], same[key])
        assert not torch.equal(first[key], other[key])
    assert torch.equal(first["states"], inputs["states"])
    assert policy(add_q_head=True).augment(inputs, torch.Generator()) is inputs


def test_stacked_frames_are_more_channels() -> None:
    model, obs = policy(num_frames=2), observations()
    for key in ("main_images", "wrist_images"):
        obs[key] = torch.cat([obs[key], obs[key].flip(1)], -1)
    actions, _ = model.predict_action_batch(obs, mode="eval")
    assert actions.shape == (ROWS, 1, DIM)


def test_pixels_are_centred_and_keep_their_places() -> None:
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
