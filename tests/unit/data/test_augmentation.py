"""Random changes of images: what they keep, and what names them."""

import colorsys

import torch

from rlinf.config.schema.data import AugmentationConfig
from rlinf.data.augmentation import augment


def ramps(count: int = 8) -> torch.Tensor:
    """Images that become brighter from left to right, uint8 [count, 32, 32, 3]."""
    return torch.linspace(20, 200, 32).to(torch.uint8)[None, None, :, None].expand(count, 32, 32, 3).contiguous()


def changed(images: torch.Tensor, seed: int = 0, **keys: float) -> torch.Tensor:
    return augment(images, AugmentationConfig(**keys), seed=seed, rows=slice(0, len(images)))


def test_nothing_changes_by_default() -> None:
    assert changed(ramps()) is not None
    assert torch.equal(changed(ramps()), ramps())


def test_crops_are_parts_of_the_image_in_its_size() -> None:
    cropped = changed(ramps(64), crop_area=0.64).float()
    assert cropped.shape == (64, 32, 32, 3)
    spans = (cropped[:, :, -1] - cropped[:, :, 0])[:, 0, 0]
    # The side is 0.8 of the image's, so the ramp rises by as much less.
    torch.testing.assert_close(spans, torch.full((64,), 0.8 * 180 * 31.5 / 31), atol=6.0, rtol=0)
    firsts = cropped[:, 0, 0, 0]
    assert firsts.min() < 28
    assert firsts.max() > 48


def test_brightness_is_added_and_contrast_is_about_the_mean_of_each_colour() -> None:
    plain = ramps(64).float()
    added = changed(ramps(64), brightness=0.2).float().mean((1, 2, 3)) - plain.mean((1, 2, 3))
    # A fifth of white, but for what is cut off at its ends.
    assert 40 < added.max() < 51
    assert -51 < added.min() < -35
    tinted = ramps(64)
    tinted[..., 2] //= 4
    harder = changed(tinted, contrast=0.2).float()
    torch.testing.assert_close(harder.mean((1, 2)), tinted.float().mean((1, 2)), atol=1.0, rtol=0)
    spread = harder.std((1, 2)) / tinted.float().std((1, 2))
    assert 0.78 < spread.min() < 0.85
    assert 1.15 < spread.max() < 1.22
    torch.testing.assert_close(spread[:, 0], spread[:, 2], atol=0.03, rtol=0)


def painted(count: int = 64) -> torch.Tensor:
    """Images of nine colours, with grey and black among them, uint8 [count, 3, 3, 3]."""
    colours = [(200, 40, 90), (30, 180, 60), (20, 70, 220), (255, 0, 0), (90, 90, 90), (0, 0, 0)]
    colours += [(10, 200, 200), (255, 100, 0), (180, 20, 190)]
    return torch.tensor(colours, dtype=torch.uint8).view(1, 3, 3, 3).expand(count, -1, -1, -1).contiguous()


def hue_saturation_value(images: torch.Tensor) -> torch.Tensor:
    """Return the colours of pixels as the standard library says, float32 [N, 3]."""
    pixels = (images.float() / 255).flatten(0, -2).tolist()
    return torch.tensor([colorsys.rgb_to_hsv(*pixel) for pixel in pixels])


def test_saturation_and_hue_leave_the_value() -> None:
    before = hue_saturation_value(painted()).view(64, 9, 3)
    after = hue_saturation_value(changed(painted(), saturation=0.2)).view(64, 9, 3)
    torch.testing.assert_close(after[..., 2], before[..., 2], atol=4e-3, rtol=0)
    torch.testing.assert_close(after[:, (0, 1, 2, 6, 7, 8), 0], before[:, (0, 1, 2, 6, 7, 8), 0], atol=0.01, rtol=0)
    dark, full = (4, 5), 3
    factors = after[:, (0, 1, 2), 1] / before[:, (0, 1, 2), 1]
    torch.testing.assert_close(factors[:, 0], factors.mean(1), atol=0.05, rtol=0)
    assert 0.78 < factors.min() < 0.85
    assert 1.06 < factors[:, 0].max() < 1.22
    # Grey stays grey, and what is saturated does not overflow.
    assert not after[:, dark, 1].any()
    assert after[:, full, 1].max() == 1.0
    turned = hue_saturation_value(changed(painted(), hue=0.05)).view(64, 9, 3)
    turns = (turned[:, :4, 0] - before[:, :4, 0] + 0.5) % 1.0 - 0.5
    torch.testing.assert_close(turns, turns.mean(1, keepdim=True).expand_as(turns), atol=6e-3, rtol=0)
    assert 0.04 < turns.max() < 0.055
    assert -0.055 < turns.min() < -0.04
    torch.testing.assert_close(turned[..., 1:], before[..., 1:], atol=0.02, rtol=0)


def test_new_colours_are_those_of_the_row_and_leave_crops_as_they_were() -> None:
    images = changed(painted(8), saturation=0.5, hue=0.3)
    assert len(images.flatten(1).unique(dim=0)) == 8
    keys = AugmentationConfig(saturation=0.5, hue=0.3)
    assert torch.equal(augment(painted(3), keys, seed=0, rows=slice(5, 8)), images[5:])
    assert torch.equal(changed(ramps(), crop_area=0.64, hue=0.3), changed(ramps(), crop_area=0.64))


def test_rows_have_their_own_draws_which_the_seed_names() -> None:
    images = changed(ramps(), brightness=0.5)
    assert len(images.flatten(1).float().mean(1).unique()) == 8
    assert torch.equal(images, changed(ramps(), brightness=0.5))
    assert not torch.equal(images, changed(ramps(), seed=1, brightness=0.5))
