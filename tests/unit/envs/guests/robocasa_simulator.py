"""RoboCasa as its adapter calls it, without MuJoCo: kitchens are numbers that count steps."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import numpy as np

SIZES = {
    "robot0_eef_pos": 3,
    "robot0_eef_quat": 4,
    "robot0_gripper_qpos": 2,
    "robot0_gripper_qvel": 2,
    "robot0_base_to_eef_pos": 3,
    "robot0_base_to_eef_quat": 4,
    "robot0_base_pos": 3,
    "robot0_base_quat": 4,
}
KITCHENS: list[Kitchen] = []


def create_env(
    env_name: str,
    robots: str = "PandaOmron",
    camera_names: Any = ("robot0_agentview_left",),
    camera_widths: int = 128,
    camera_heights: int = 128,
    seed: int | None = None,
    render_onscreen: bool = False,
    translucent_robot: bool = False,
    split: str | None = None,
    obj_instance_split: str | None = None,
    generative_textures: Any = None,
    randomize_cameras: bool = False,
    layout_and_style_ids: Any = None,
    layout_ids: Any = None,
    style_ids: Any = None,
) -> Kitchen:
    """Build a kitchen, with the arguments of RoboCasa 1.0.1."""
    assert not render_onscreen
    kitchen = Kitchen(env_name, robots, camera_names, (camera_heights, camera_widths), seed)
    kitchen.scene = (split, obj_instance_split, layout_ids, style_ids)
    KITCHENS.append(kitchen)
    return kitchen


class Kitchen:
    """A drawer that is closed after some steps; whether it is closed cannot be asked before a reset."""

    def __init__(self, task: str, robot: str, cameras: Any, size: tuple[int, int], seed: int | None) -> None:
        self.task, self.robot, self.cameras, self.size = task, robot, list(cameras), size
        self.rng = np.random.default_rng(seed)
        self.actions: list[np.ndarray] = []
        self.scene: Any = None
        self.is_closed = False

    def reset(self) -> dict[str, np.ndarray]:
        self.layout, self.wanted, self.time = int(self.rng.integers(1000)), int(self.rng.integers(2, 6)), 0
        parts = [("right", (0, 6)), ("right_gripper", (6, 7)), ("base", (7, 10)), ("torso", (10, 11))]
        split = OrderedDict(parts if self.robot == "PandaOmron" else parts[:2])
        controller = SimpleNamespace(_action_split_indexes=split)
        self.robots = [SimpleNamespace(composite_controller=controller)]
        return self.obs()

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, dict[str, Any]]:
        assert action.shape == (12,)
        assert action.dtype == np.float64
        self.actions.append(action.copy())
        self.time += 1
        return self.obs(), float(self._check_success()), False, {}

    def obs(self) -> dict[str, np.ndarray]:
        seen = {name: np.full(size, self.layout + self.time / 8) for name, size in SIZES.items()}
        seen["robot0_base_to_eef_pos"] = np.array([1.0, 2.0, 3.0])
        height = np.arange(self.size[0], dtype=np.uint8)[:, None, None]
        for number, camera in enumerate(self.cameras):
            image = np.broadcast_to(height * 10 + number, (*self.size, 3)).copy()
            image[..., 0] = self.time
            seen[f"{camera}_image"] = image
        return seen

    def get_ep_meta(self) -> dict[str, Any]:
        return {"layout_id": self.layout, "lang": f"close the drawer of kitchen {self.layout}"}

    def _check_success(self) -> bool:
        return self.time >= self.wanted

    def close(self) -> None:
        self.is_closed = True
