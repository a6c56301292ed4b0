"""Weights that depend on their names alone, so that a fixture holds what a model computes and not the model itself."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import torch

FIRST_ACTION_TOKEN, LAST_ACTION_TOKEN = 31744, 31999
"""Tokens of the Llama-2 vocabulary that stand for actions."""
_LIKELY = 6.0
"""Factor on the output weights of action tokens, so that one of these is the most likely token."""


_CALM = 0.25
"""Factor on the velocities of flows: at their full size, random ones carry rounding errors away from each other."""


def seeded_weight(name: str, shape: Sequence[int]) -> torch.Tensor:
    """Return a float32 tensor that looks like a trained weight of its kind.

    Args:
        name: Of the parameter; names its random stream, which numpy keeps the same in all versions.
        shape: Its shape.
    """
    noise = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(tuple(shape)).astype(np.float32)
    weight = torch.from_numpy(noise)
    if name.endswith("scale_factor"):
        return 0.5 + 0.1 * weight
    if weight.ndim == 1:
        is_norm = name.endswith("weight")
        return 1.0 + 0.1 * weight if is_norm else 0.1 * weight
    if name.endswith("lm_head.weight"):
        weight[FIRST_ACTION_TOKEN : LAST_ACTION_TOKEN + 1] *= _LIKELY
    if name == "action_out_proj.weight":
        weight *= _CALM
    fan_in = weight.shape[-1] if weight.ndim < 4 else weight[0].numel()
    return weight / fan_in**0.5


def seeded_state(shapes: Mapping[str, Sequence[int]]) -> dict[str, torch.Tensor]:
    """Return ``seeded_weight`` of every name."""
    return {name: seeded_weight(name, shape) for name, shape in shapes.items()}


def seeded_images(count: int, size: int) -> torch.Tensor:
    """Return uint8 [count, size, size, 3] that is smooth and different in each image."""
    noise = np.random.RandomState(count * size).uniform(0, 255, (count, 4, 4, 3)).astype(np.float32)
    small = torch.from_numpy(noise).permute(0, 3, 1, 2)
    large = torch.nn.functional.interpolate(small, size=(size, size), mode="bilinear", align_corners=True)
    return large.permute(0, 2, 3, 1).round().to(torch.uint8)
