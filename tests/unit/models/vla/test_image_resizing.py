"""Images are resized and cropped as published pipelines do, on Pillow as reference."""

from __future__ import annotations

import pytest
import torch

from rlinf.models.vla.image_resizing import center_crop, resize, resize_with_padding, through_jpeg
from toolkits.vla.seeded_weights import seeded_images

Image = pytest.importorskip("PIL.Image")
np = pytest.importorskip("numpy")


def images(size: int) -> torch.Tensor:
    """Return smooth images with noise and sharp edges on them."""
    base = seeded_images(4, size).float()
    noise = torch.randn(base.shape, generator=torch.Generator().manual_seed(0)) * 12
    base[:, size // 3 :, size // 2] = 255.0
    return (base + noise).clamp(0, 255).to(torch.uint8)


@pytest.mark.parametrize("kernel", ["lanczos3", "bicubic"])
@pytest.mark.parametrize(("before", "after"), [(64, 224), (256, 224), (128, 42), (224, 224)])
def test_resizing_is_that_of_pillow_within_one_grey_level(kernel: str, before: int, after: int) -> None:
    batch = images(before)
    method = {"lanczos3": Image.Resampling.LANCZOS, "bicubic": Image.Resampling.BICUBIC}[kernel]
    # TensorFlow, which lanczos3 follows, rounds once at the end, as Pillow does with images of floats.
    mode = torch.float32 if kernel == "lanczos3" else torch.uint8
    channels = [Image.fromarray(grey.to(mode).numpy()) for image in batch for grey in image.unbind(-1)]
    planes = np.stack([np.array(channel.resize((after, after), method)) for channel in channels])
    expected = torch.from_numpy(planes).float().round().clamp(0, 255).view(4, 3, after, after).permute(0, 2, 3, 1)
    difference = (resize(batch, after, kernel).float() - expected).abs()
    assert difference.max() <= 1
    assert difference.mean() <= 0.01


def test_rectangles_become_squares() -> None:
    assert resize(images(64)[:, :48], 32, "bicubic").shape == (4, 32, 32, 3)


def test_rectangles_keep_their_shape_between_borders() -> None:
    batch = images(64)[:, :32]
    padded = resize_with_padding(batch, 28)
    inside = [np.array(Image.fromarray(image.numpy()).resize((28, 14), Image.Resampling.BILINEAR)) for image in batch]
    difference = (padded[:, 7:21].float() - torch.from_numpy(np.stack(inside)).float()).abs()
    assert difference.max() <= 1
    assert not padded[:, :7].any()
    assert not padded[:, 21:].any()
    assert torch.equal(resize_with_padding(images(28), 28), images(28))


def test_the_middle_is_shown() -> None:
    """By hand: 11 pixels in a row, of which the middle nine tenths of the area span 0.2566 to 9.7434."""
    row = torch.arange(11, dtype=torch.uint8) * 13
    image = row.view(1, 1, 11, 1).expand(1, 11, 11, 3).contiguous()
    side = 0.9**0.5
    first = (1 - side) / 2 * 10
    expected = [int((first + side * place) * 13 / 255 * 255.5) for place in range(11)]
    cropped = center_crop(image, 0.9)
    assert cropped[0, 5, :, 0].tolist() == expected
    assert torch.equal(cropped[:, 0], cropped[:, 10])
    assert torch.equal(center_crop(image.transpose(1, 2), 0.9), cropped.transpose(1, 2))


def test_jpeg_loses_a_little() -> None:
    batch = seeded_images(2, 64)
    difference = (through_jpeg(batch).float() - batch.float()).abs()
    assert 0 < difference.mean() < 2
