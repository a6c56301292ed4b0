"""Images as published pipelines bring them to a model's size, on batches of uint8."""

from __future__ import annotations

import io
import math
from collections.abc import Callable

import torch

from rlinf.utils.optional import require

_JPEG_QUALITY = 95


def lanczos3(distance: torch.Tensor) -> torch.Tensor:
    """Return the weight of Lanczos' kernel of radius 3."""
    inside = torch.sinc(distance) * torch.sinc(distance / 3.0)
    return torch.where(distance.abs() < 3.0, inside, torch.zeros_like(inside))


def bicubic(distance: torch.Tensor) -> torch.Tensor:
    """Return the weight of the cubic kernel of Keys with a = -0.5, of radius 2."""
    x = distance.abs()
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return torch.where(x < 1.0, near, torch.where(x < 2.0, far, torch.zeros_like(x)))


def bilinear(distance: torch.Tensor) -> torch.Tensor:
    """Return the weight of the triangle of radius 1."""
    return (1.0 - distance.abs()).clamp(min=0.0)


KERNELS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "lanczos3": lanczos3,
    "bicubic": bicubic,
    "bilinear": bilinear,
}


def resize(images: torch.Tensor, size: int | tuple[int, int], kernel: str) -> torch.Tensor:
    """Resize with antialiasing: the kernel is as wide as an output pixel where the image becomes smaller.

    Args:
        images: uint8 [B, H, W, 3].
        size: Side of the result in pixels, or its height and width.
        kernel: ``lanczos3`` rounds once (TensorFlow's resize), others after each axis (Pillow's).

    Returns:
        uint8 [B, size, size, 3].
    """
    sides = (size, size) if isinstance(size, int) else size
    weights = [
        _weights(extent, side, kernel).to(images.device) for extent, side in zip(images.shape[1:3], sides, strict=True)
    ]
    wide = torch.einsum("bhwc,ow->bhoc", images.float(), weights[1])
    if kernel != "lanczos3":
        wide = _rounded(wide)
    both = torch.einsum("bhwc,oh->bowc", wide, weights[0])
    return _rounded(both).to(torch.uint8)


def resize_with_padding(images: torch.Tensor, size: int) -> torch.Tensor:
    """Resize without distortion, with black borders of equal width on both sides (openpi).

    Args:
        images: uint8 [B, H, W, 3].
        size: Side of the result in pixels.

    Returns:
        uint8 [B, size, size, 3].
    """
    height, width = images.shape[1:3]
    if (height, width) == (size, size):
        return images
    ratio = max(height, width) / size
    inner = (int(height / ratio), int(width / ratio))
    top, left = ((size - side) // 2 for side in inner)
    padded = images.new_zeros(len(images), size, size, 3)
    padded[:, top : top + inner[0], left : left + inner[1]] = resize(images, inner, "bilinear")
    return padded


def center_crop(images: torch.Tensor, area: float) -> torch.Tensor:
    """Show the middle part of images at their size, interpolated linearly between the corners' centres.

    Args:
        images: uint8 [B, H, W, 3].
        area: Of the part, over that of the image.
    """
    side = math.sqrt(area)
    unit = images.float() / 255.0
    for axis in (1, 2):
        extent = images.shape[axis]
        first = (1.0 - side) / 2.0 * (extent - 1)
        place = first + torch.linspace(0, 1, extent, device=images.device) * side * (extent - 1)
        low = place.floor().clamp(0, extent - 2)
        share = (place - low).view([-1 if at == axis else 1 for at in range(4)])
        below, above = unit.index_select(axis, low.long()), unit.index_select(axis, low.long() + 1)
        unit = torch.lerp(below, above, share)
    # As TensorFlow converts to uint8.
    return (unit.clamp(0, 1) * 255.5).floor().clamp(max=255).to(torch.uint8)


def through_jpeg(images: torch.Tensor) -> torch.Tensor:
    """Encode and decode images, uint8 [B, H, W, 3], with quality 95 and half the colours' resolution.

    Raises:
        MissingPackageError: Pillow is not installed.
    """
    pil = require("PIL.Image", needed_by="actor.model.image_jpeg")
    numpy = require("numpy", needed_by="actor.model.image_jpeg")
    decoded = []
    for image in images.cpu():
        buffer = io.BytesIO()
        pil.fromarray(image.numpy()).save(buffer, "JPEG", quality=_JPEG_QUALITY, subsampling=2)
        decoded.append(torch.from_numpy(numpy.array(pil.open(buffer))))
    return torch.stack(decoded).to(images.device)


def _rounded(grey: torch.Tensor) -> torch.Tensor:
    """Return the nearest whole grey levels, halves rounded up."""
    return (grey + 0.5).floor().clamp(0, 255)


def _weights(extent: int, size: int, kernel: str) -> torch.Tensor:
    """Return what each pixel of an axis adds to each of the result, [size, extent]; rows sum to 1."""
    ratio = extent / size
    centres = (torch.arange(size, dtype=torch.float64) + 0.5) * ratio
    distances = torch.arange(extent, dtype=torch.float64) + 0.5 - centres.unsqueeze(1)
    weights = KERNELS[kernel](distances / max(1.0, ratio))
    return (weights / weights.sum(1, keepdim=True)).float()
