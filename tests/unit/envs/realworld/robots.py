"""Configurations of arms, shared by the tests of this folder."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from rlinf.config.schema.realworld import RealWorldEnvConfig


def make_config(**keys: Any) -> RealWorldEnvConfig:
    """Return a stand-in's configuration: the target 0.2 m below the start, small images."""
    defaults: dict[str, Any] = {
        "total_num_envs": 2,
        "max_episode_steps": 30,
        "max_steps_per_rollout_epoch": 30,
        "is_dummy": True,
        "target_ee_pose": [0.5, 0.0, 0.1, 3.1416, 0.0, 0.0],
        "image_size": 24,
    }
    return RealWorldEnvConfig(env_type="realworld", **{**defaults, **keys})


def robot(number: int, **keys: Any) -> dict[str, Any]:
    """Return what a worker is told of its robot."""
    return {"type": "Franka", "node_rank": 0, "robot_ip": f"10.0.0.{number}", "camera_serials": ["a"], **keys}


def write_video(path: Path, images: list[npt.NDArray[np.uint8]], frames_per_second: float = 50.0) -> str:
    """Write RGB images as a video, and return the name of the camera that it stands in for."""
    cv2: Any = pytest.importorskip("cv2", reason="needs opencv-python-headless")
    height, width = images[0].shape[:2]
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), frames_per_second, (width, height))
    for image in images:
        writer.write(image[..., ::-1])
    writer.release()
    return f"opencv:{path}"


def plain(*colour: int, height: int = 48, width: int = 64) -> npt.NDArray[np.uint8]:
    """Return an image of one colour, RGB."""
    return np.broadcast_to(np.array(colour, np.uint8), (height, width, 3)).copy()
