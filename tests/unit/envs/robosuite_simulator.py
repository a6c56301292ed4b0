"""A stand-in for robosuite: each arm has a height that actions change, in a scene that MuJoCo renders."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

_SCENE = """
<mujoco>
  <asset>
    <texture name="sky" type="skybox" builtin="flat" rgb1="0 0 0" width="8" height="8"/>
  </asset>
  <worldbody>
    <light pos="1.5 0 1.5" dir="-1 0 -0.8" castshadow="true"/>
    <geom type="plane" size="1 1 0.1" rgba="0.2 0.7 0.2 1" group="1"/>
    <geom type="box" size="0.2 0.2 0.1" pos="0 0 0.4" rgba="0.8 0.1 0.1 1" group="1"/>
    <geom name="hidden" type="box" size="0.4 0.4 0.4" pos="0 0 0.3" rgba="0.1 0.1 0.9 1" group="0"/>
    <camera name="agentview" pos="1.5 0 0.5" xyaxes="0 1 0 -0.2 0 1"/>
    <camera name="frontview" pos="2.5 0 0.5" xyaxes="0 1 0 -0.2 0 1"/>
    <camera name="robot0_eye_in_hand" pos="0 0 2" xyaxes="0 1 0 -1 0 0"/>
  </worldbody>
</mujoco>
"""


def make_sim() -> Any:
    """Return a scene's ``MjSim``: a red box above a green floor, and a blue box that is collision geometry."""
    import mujoco

    model = mujoco.MjModel.from_xml_string(_SCENE)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    return SimpleNamespace(model=SimpleNamespace(_model=model), data=SimpleNamespace(_data=data))


class FakeScene:
    """A scene whose objects have a size that is sampled when it is built.

    Args:
        name: Task.
        options: What ``make`` was called with.
    """

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        self.name, self.options = name, options
        self.size, self.sim = float(np.random.uniform()), make_sim()
        # As robosuite's mode 1: which object is there would follow from the order of a set of strings.
        self.single_object_mode, self.object_id, self.nut_id = 1, -1, -1
        self.robots = [
            SimpleNamespace(has_gripper=True, gripper=SimpleNamespace(current_action=np.zeros(1)))
            for _ in options["robots"]
        ]
        self.place, self.heights = 0.0, np.zeros(len(self.robots))
        self.is_closed = False

    @property
    def action_spec(self) -> tuple[np.ndarray, np.ndarray]:
        bound = np.ones(7 * len(self.robots))
        return -bound, bound

    def reset(self) -> dict[str, Any]:
        self.place, self.heights = float(np.random.uniform()), np.zeros(len(self.robots))
        return self._observe()

    def step(self, action: np.ndarray) -> tuple[dict[str, Any], float, bool, dict[str, Any]]:
        for number, robot in enumerate(self.robots):
            own = action[7 * number : 7 * number + 7]
            self.heights[number] += own[2]
            robot.gripper.current_action += 0.2 * np.sign(own[6])
        return self._observe(), float(self.heights.sum() * 2 - 0.5), False, {}

    def close(self) -> None:
        self.is_closed = True

    def _check_success(self) -> np.bool_:
        return np.bool_(self.heights.min() > 0.9)

    def _observe(self) -> dict[str, Any]:
        obs: dict[str, Any] = {}
        for number, robot in enumerate(self.robots):
            grip = robot.gripper.current_action
            obs[f"robot{number}_eef_pos"] = np.array([number, 0.0, self.heights[number]])
            obs[f"robot{number}_eef_quat"] = np.array([1.0, 0.0, 0.0, 0.0])
            obs[f"robot{number}_gripper_qpos"] = np.concatenate([grip, -grip])
            obs[f"robot{number}_proprio-state"] = np.full(3, 10.0 * number) + np.array([*grip, 0, 0])
        obs["object-state"] = np.array([self.place, self.size, self.object_id, self.nut_id])
        return obs


class FakeRobosuite:
    """The module."""

    def __init__(self) -> None:
        self.scenes: list[FakeScene] = []

    def make(self, name: str, **options: Any) -> FakeScene:
        self.scenes.append(FakeScene(name, options))
        return self.scenes[-1]

    @staticmethod
    def load_controller_config(*, default_controller: str) -> dict[str, str]:
        return {"type": default_controller}
