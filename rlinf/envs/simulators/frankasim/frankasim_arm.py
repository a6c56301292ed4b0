"""The arm that tasks of ``frankasim`` share: a hand that follows a target, a gripper, cameras; imports no torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from rlinf.envs.opengl import choose_opengl
from rlinf.envs.raw_chunk import Frame
from rlinf.envs.simulators.frankasim.frankasim_scene import FINGER_OPEN, HOME
from rlinf.envs.simulators.mujoco_cameras import MujocoCameras
from rlinf.utils.optional import require

Vector = npt.NDArray[np.float64]

_CONTROL_STEPS = 25
"""Simulation steps (2 ms) for each action: 20 actions a second."""
MAX_STEP_METERS = 0.03
"""Way of the hand's target by an action of length 1 along an axis."""
WORKSPACE = np.array([[0.3, -0.25, 0.015], [0.7, 0.25, 0.4]])
"""Where the hand's target may be."""
_DAMPING = 0.05
"""Of the inverse kinematics: smaller is more exact, larger is calmer near singular postures."""
_IK_ITERATIONS = 3
_PLACING_ITERATIONS = 100
"""Of the inverse kinematics where the hand is put somewhere else at once."""


class FrankaArm:
    """An arm whose hand points down.

    Args:
        scene: MuJoCo's XML, with the arm of ``frankasim_scene``.
        has_images: Whether images will be rendered.
        is_light: Render without shadow maps and multisampling, which take most of the time without a GPU.
    """

    def __init__(self, scene: str, *, has_images: bool, is_light: bool) -> None:
        if has_images:
            choose_opengl()
        self._mujoco: Any = require("mujoco", needed_by="env_type=frankasim")
        self.model = self._mujoco.MjModel.from_xml_string(scene)
        self.data = self._mujoco.MjData(self.model)
        # The inverse kinematics moves an arm of its own.
        self._plan = self._mujoco.MjData(self.model)
        self._tcp = self.model.site("tcp").id
        self._target: Vector = np.zeros(3)
        self._down: Vector = np.zeros((3, 3))
        self._cameras = MujocoCameras(self.model, self.data, is_light=is_light)

    @property
    def hand(self) -> Vector:
        """Position between the fingers [3], in meters."""
        return np.array(self.data.site_xpos[self._tcp])

    @property
    def opening(self) -> float:
        """Distance of the fingers, in meters."""
        return float(self.data.qpos[7:9].sum())

    def reset(self, objects: list[float]) -> None:
        """Put the arm home, and all else where ``objects`` says, in MuJoCo's coordinates."""
        self._mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:] = [*HOME, *objects]
        self.data.ctrl[:] = HOME
        self._mujoco.mj_forward(self.model, self.data)
        self._plan.qpos[:] = self.data.qpos
        self._target = self.hand
        self._down = self.data.site_xmat[self._tcp].reshape(3, 3).copy()

    def place_hand(self, position: Vector) -> None:
        """Put the hand somewhere else, pointing down and at rest."""
        self._target = np.clip(position, *WORKSPACE)
        self.data.qpos[:7] = self._solve(self._target, _PLACING_ITERATIONS)
        self.data.ctrl[:7] = self.data.qpos[:7]
        self._mujoco.mj_forward(self.model, self.data)

    def move(self, action: Vector) -> None:
        """Move the hand's target by ``action[:3]`` and set the gripper by ``action[3]``: 1 is open, -1 is closed."""
        self._target = np.clip(self._target + MAX_STEP_METERS * action[:3], *WORKSPACE)
        self.data.ctrl[:7] = self._solve(self._target, _IK_ITERATIONS)
        self.data.ctrl[7:] = FINGER_OPEN * (action[3] + 1) / 2
        self._mujoco.mj_step(self.model, self.data, _CONTROL_STEPS)

    def velocity(self) -> Vector:
        """Return the hand's velocity [3], in meters per second."""
        jacobian = np.zeros((3, self.model.nv))
        self._mujoco.mj_jacSite(self.model, self.data, jacobian, None, self._tcp)
        velocity: Vector = jacobian @ self.data.qvel
        return velocity

    def draw(self, camera: str, size: int) -> Frame:
        """Return what a camera sees, uint8 [size, size, 3]."""
        return self._cameras.draw(camera, size)

    def close(self) -> None:
        """Free the renderers."""
        self._cameras.close()

    def _solve(self, target: Vector, iterations: int) -> Vector:
        """Return joint angles [7] that bring the hand to a position, pointing down: damped least squares."""
        plan, jacobian = self._plan, np.zeros((6, self.model.nv))
        for _ in range(iterations):
            self._mujoco.mj_kinematics(self.model, plan)
            self._mujoco.mj_comPos(self.model, plan)
            self._mujoco.mj_jacSite(self.model, plan, jacobian[:3], jacobian[3:], self._tcp)
            turned = plan.site_xmat[self._tcp].reshape(3, 3)
            # The rotation vector between two nearby orientations: half the sum of their axes' cross products.
            turn = 0.5 * np.cross(turned.T, self._down.T).sum(axis=0)
            error = np.concatenate([target - plan.site_xpos[self._tcp], turn])
            arm = jacobian[:, :7]
            change = arm.T @ np.linalg.solve(arm @ arm.T + _DAMPING**2 * np.eye(6), error)
            plan.qpos[:7] = np.clip(plan.qpos[:7] + change, *self.model.jnt_range[:7].T)
        return np.array(plan.qpos[:7])
