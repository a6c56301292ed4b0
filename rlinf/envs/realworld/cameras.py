"""Images of a robot's cameras, as rows of the observation; imports no torch."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from rlinf.envs.raw_chunk import Frame
from rlinf.errors import EnvironmentFailure


def image_row(frames: list[Frame], *, num_cameras: int, size: int, robot: str) -> dict[str, Any]:
    """Return ``main_images`` [H, W, 3] and, with several cameras, ``extra_view_images`` [N, H, W, 3].

    Args:
        frames: What the driver returned.
        num_cameras: How many there have to be; 0 shows none.
        size: Their height and width in pixels.
        robot: Its address, for the message.

    Raises:
        EnvironmentFailure: They are others.
    """
    shapes = [frame.shape for frame in frames]
    if shapes != [(size, size, 3)] * num_cameras or any(frame.dtype != np.uint8 for frame in frames):
        raise EnvironmentFailure(
            f"env.*.client of the robot {robot} returned images {shapes}; expected {num_cameras} of uint8 "
            f"[{size}, {size}, 3]: one for each camera, of env.*.image_size."
        )
    row: dict[str, Any] = {"main_images": frames[0]} if frames else {}
    return {**row, "extra_view_images": np.stack(frames[1:])} if num_cameras > 1 else row


def image_spaces(num_cameras: int, size: int | None) -> dict[str, gymnasium.Space[Any]]:
    """Return the spaces of what ``image_row`` returns."""
    if not num_cameras:
        return {}
    shape = (size, size, 3)
    spaces: dict[str, gymnasium.Space[Any]] = {"main_images": gymnasium.spaces.Box(0, 255, shape, np.uint8)}
    if num_cameras > 1:
        spaces["extra_view_images"] = gymnasium.spaces.Box(0, 255, (num_cameras - 1, *shape), np.uint8)
    return spaces
