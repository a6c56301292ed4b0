"""Random changes of images that demonstrations are learned from."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from rlinf.config.schema.data import AugmentationConfig


def augment(images: torch.Tensor, cfg: AugmentationConfig, *, seed: int, rows: slice) -> torch.Tensor:
    """Return images, each cropped, brightened and contrasted by its own draws.

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
    brightness, contrast = (
        (draws[:, 2:] * torch.tensor([cfg.brightness, cfg.contrast]) + 1.0).view(-1, 2, 1, 1).unbind(1)
    )
    mean = pixels.mean((1, 2, 3), keepdim=True)
    pixels = ((pixels - mean) * contrast.unsqueeze(1) + mean) * brightness.unsqueeze(1)
    return pixels.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1)
