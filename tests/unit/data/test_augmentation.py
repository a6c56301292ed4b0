"""Random changes of images: what they keep, and what names them."""

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


def test_brightness_and_contrast_are_bounded() -> None:
    plain = ramps(64).float()
    brighter = changed(ramps(64), brightness=0.2).float().mean((1, 2, 3)) / plain.mean((1, 2, 3))
    assert brighter.min() > 0.79
    assert brighter.max() < 1.21
    assert brighter.max() - brighter.min() > 0.25
    harder = changed(ramps(64), contrast=0.2).float()
    spread = harder.std((1, 2, 3)) / plain.std((1, 2, 3))
    assert spread.min() > 0.78
    assert spread.max() < 1.22
    assert spread.max() - spread.min() > 0.25
    torch.testing.assert_close(harder.mean((1, 2, 3)), plain.mean((1, 2, 3)), atol=1.0, rtol=0)


def test_rows_have_their_own_draws_which_the_seed_names() -> None:
    images = changed(ramps(), brightness=0.5)
    assert len(images.flatten(1).float().mean(1).unique()) == 8
    assert torch.equal(images, changed(ramps(), brightness=0.5))
    assert not torch.equal(images, changed(ramps(), seed=1, brightness=0.5))
