"""RoboTwin 2 as its adapter calls it, without SAPIEN: tasks are numbers that count actions."""

from __future__ import annotations

from typing import Any

import numpy as np

TASKS: list[beat_block_hammer] = []
NEEDED = {
    "task_name",
    "left_robot_file",
    "right_robot_file",
    "left_embodiment_config",
    "right_embodiment_config",
    "dual_arm_embodied",
    "head_camera_h",
    "head_camera_w",
    "domain_randomization",
    "data_type",
    "camera",
    "render_freq",
    "eval_mode",
}
"""Arguments without which a scene cannot be set up."""


class UnStableError(Exception):
    """As in RoboTwin."""


class Base_Task:  # noqa: N801 - as in RoboTwin
    """Two arms with 6 joints each; even seeds below 4 do not come to rest."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.is_open = False
        self.looks = 0

    def _init_task_env_(self, now_ep_num: int, seed: int, is_test: bool, **settings: Any) -> None:
        assert not self.is_open, "close_env comes first"
        assert NEEDED - settings.keys() == set()
        assert settings["left_embodiment_config"]["arm_joints_name"]
        self.calls.append(("setup_demo", now_ep_num, seed, is_test))
        self.settings, self.is_open = settings, True
        if seed in (0, 2):
            raise UnStableError(f"Objects is unstable in seed({seed})")
        self.seed, self.take_action_cnt, self.step_lim, self.eval_success = seed, 0, 4, False
        self.instruction = None

    def close_env(self, clear_cache: bool = False) -> None:
        self.calls.append(("close_env", clear_cache))
        self.is_open = False

    def take_action(self, action: np.ndarray, action_type: str = "qpos") -> None:
        if self.take_action_cnt == self.step_lim or self.eval_success:
            return
        assert action.shape == {"qpos": (14,), "ee": (16,)}[action_type]
        self.calls.append((action_type, action.tolist()))
        self.take_action_cnt += 1
        self.eval_success = bool(self.check_success())

    def check_success(self) -> bool:
        raise NotImplementedError

    def get_obs(self) -> dict[str, Any]:
        self.looks += 1
        flags = self.settings["data_type"]
        shape = (self.settings["head_camera_h"], self.settings["head_camera_w"], 3)
        cameras: dict[str, Any] = {name: {} for name in ("head_camera", "left_camera", "right_camera")}
        if flags.get("rgb", False):
            for number, camera in enumerate(cameras.values()):
                camera["rgb"] = np.full(shape, 10 * number + self.take_action_cnt, np.uint8)
        found: dict[str, Any] = {"observation": cameras, "pointcloud": [], "joint_action": {}, "endpose": {}}
        if flags.get("endpose", False):
            for side in ("left", "right"):
                found["endpose"][f"{side}_endpose"] = [float(self.seed)] * 7
                found["endpose"][f"{side}_gripper"] = 0.25 if side == "left" else 0.75
        if flags.get("qpos", False):
            found["joint_action"]["vector"] = np.arange(14.0) + self.seed + self.take_action_cnt / 8
        return found


class beat_block_hammer(Base_Task):  # noqa: N801 - as in RoboTwin
    """Beaten after some actions."""

    def __init__(self) -> None:
        super().__init__()
        TASKS.append(self)

    def setup_demo(self, **settings: Any) -> None:
        super()._init_task_env_(**settings)

    def check_success(self) -> bool:
        return self.take_action_cnt >= 2 + self.seed % 4
