"""Random changes of images that demonstrations are learned from: those of TensorFlow, as OpenVLA is published with."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from rlinf.config.schema.data import AugmentationConfig
from rlinf.utils.seeding import derive_seed


def augment(images: torch.Tensor, cfg: AugmentationConfig, *, seed: int, rows: slice) -> torch.Tensor:
    """Return images, each cropped and changed in its colours by its own draws.

    Args:
        images: uint8 [n, H, W, 3]; rows of a batch.
        cfg: How much.
        seed: Of the batch.
        rows: Which rows of the batch they are, from 0 on: the draws are those of the row, however batches are cut.

    Returns:
        uint8 [n, H, W, 3].
    """
    if cfg == AugmentationConfig():
        return images
    generator = torch.Generator().manual_seed(seed)
    draws = torch.rand(rows.start + len(images), 4, generator=generator)[rows.start :] * 2.0 - 1.0
    pixels = images.float().permute(0, 3, 1, 2)
    if cfg.crop_area < 1.0:
        side = cfg.crop_area**0.5
        place = torch.zeros(len(images), 2, 3)
        place[:, 0, 0] = place[:, 1, 1] = side
        place[:, :, 2] = draws[:, :2] * (1.0 - side)
        grid = F.affine_grid(place, list(pixels.shape), align_corners=False)
        pixels = F.grid_sample(pixels, grid, mode="bilinear", padding_mode="border", align_corners=False)
    if cfg.brightness or cfg.contrast:
        pixels = _lit(pixels, cfg, draws[:, 2:])
    if cfg.saturation or cfg.hue:
        pixels = _recoloured(pixels, cfg, seed=seed, rows=rows)
    return pixels.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)


def _lit(pixels: torch.Tensor, cfg: AugmentationConfig, draws: torch.Tensor) -> torch.Tensor:
    """Return pixels [n, 3, H, W] with another brightness, and with another contrast about the mean of each colour."""
    brightness, contrast = (draws * torch.tensor([cfg.brightness * 255.0, cfg.contrast])).view(-1, 2, 1, 1, 1).unbind(1)
    pixels = (pixels + brightness).clamp(0, 255)
    mean = pixels.mean((2, 3), keepdim=True)
    return ((pixels - mean) * (1.0 + contrast) + mean).clamp(0, 255)


def _recoloured(pixels: torch.Tensor, cfg: AugmentationConfig, *, seed: int, rows: slice) -> torch.Tensor:
    """Return pixels [n, 3, H, W] with another saturation and hue, by the colour model of hue, saturation and value."""
    generator = torch.Generator().manual_seed(derive_seed(seed, "colours"))
    draws = torch.rand(rows.start + len(pixels), 2, generator=generator)[rows.start :] * 2.0 - 1.0
    saturations, turns = (draws * torch.tensor([cfg.saturation, cfg.hue])).view(-1, 2, 1, 1).unbind(1)
    value, least = pixels.amax(1), pixels.amin(1)
    red, green, blue = pixels.unbind(1)
    span = (value - least).clamp(min=1e-6)
    # In sixths of a turn, from red.
    hue = torch.where(value == green, 2.0 + (blue - red) / span, 4.0 + (red - green) / span)
    hue = torch.where(value == red, (green - blue) / span, hue) + 6.0 * turns
    chroma = torch.minimum((value - least) * (1.0 + saturations), value)
    channels = []
    for begin in (5.0, 3.0, 1.0):
        place = (begin + hue) % 6.0
        channels.append(value - chroma * torch.minimum(place, 4.0 - place).clamp(0.0, 1.0))
    return torch.stack(channels, 1)
