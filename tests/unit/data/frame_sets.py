"""Data sets whose numbers say where they are from, and streams of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rlinf.config.schema.data import LeRobotDataConfig
from rlinf.data.datasets.lerobot import LeRobotEpisode, LeRobotWriter
from rlinf.data.datasets.lerobot.writer import WriterOptions
from rlinf.data.frames import FrameStream

HORIZON = 3
LENGTHS = (5, 1, 7)


def frame_set(root: Path, *, offset: int = 0, camera: str = "main", action_dim: int = 2, scale: float = 1.0) -> Path:
    """Write episodes of which states and actions are numbers of frames, and images ten times that.

    Args:
        root: Where to.
        offset: Added to states.
        camera: Its name.
        action_dim: Numbers of an action.
        scale: Of states and actions.
    """
    first = 0
    with LeRobotWriter(root, WriterOptions(fps=10, robot_type="toy")) as writer:
        for number, length in enumerate(LENGTHS):
            frames = np.arange(first, first + length)
            columns = {
                "observation.state": (scale * np.repeat(frames[:, None] + offset, 2, 1)).astype(np.float32),
                f"observation.images.{camera}": np.broadcast_to(
                    (10 * frames[:, None, None, None]).astype(np.uint8), (length, 16, 16, 3)
                ).copy(),
                "action": (scale * np.repeat(frames[:, None], action_dim, 1)).astype(np.float32),
                "next.done": np.arange(length)[:, None] == length - 1,
            }
            writer.add(LeRobotEpisode(columns, f"task {number % 2}"))
            first += length
    return root


def stream(path: Path, *, seed: int = 0, **keys: Any) -> FrameStream:
    """Return a stream of a set and what ``keys`` add."""
    cfg = LeRobotDataConfig(format="lerobot", path=str(path), **keys)
    return FrameStream(cfg, horizon=HORIZON, image_keys=["main_images"], seed=seed)
