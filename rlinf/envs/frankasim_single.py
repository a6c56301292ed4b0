"""One simulated Franka arm before a cube as a ``SingleEnv``; imports no torch, and MuJoCo only when one is built."""

from __future__ import annotations

import os
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from rlinf.envs.frankasim_scene import CUBE_HALF_SIZE, FINGER_OPEN, HOME, SCENE
from rlinf.envs.raw_chunk import Frame
from rlinf.envs.single_env import SingleStep
from rlinf.utils.optional import require

Vector = npt.NDArray[np.float64]

DESCRIPTION = "Pick up the red cube."
_CONTROL_STEPS = 25
"""Simulation steps (2 ms) for each action: 20 actions a second."""
_MAX_STEP_METERS = 0.03
"""Way of the hand's target by an action of length 1 along an axis."""
_WORKSPACE = np.array([[0.3, -0.25, 0.015], [0.7, 0.25, 0.4]])
"""Where the hand's target may be."""
_CUBE_AREA = np.array([[0.42, -0.12], [0.58, 0.12]])
_LIFT_METERS = 0.1
"""How high the cube has to be lifted."""
_DAMPING = 0.05
"""Of the inverse kinematics: smaller is more exact, larger is calmer near singular postures."""
_IK_ITERATIONS = 3
_CAMERAS = {"main_images": "front", "wrist_images": "wrist"}
_VIDEO_SIZE = 256


class FrankaSimSingleEnv:
    """An arm whose hand points down and follows a target that actions move; a gripper; a cube.

    Args:
        image_size: Height and width of the cameras' images; None for states only.
        render: Whether it has to render images.
    """

    def __init__(self, *, image_size: int | None, render: bool) -> None:
        if (render or image_size is not None) and "DISPLAY" not in os.environ:
            # MuJoCo would try GLFW first, which cannot work without a display; read when it is imported.
            os.environ.setdefault("MUJOCO_GL", "egl")
        self._mujoco: Any = require("mujoco", needed_by="env_type=frankasim")
        self._model = self._mujoco.MjModel.from_xml_string(SCENE)
        self._data = self._mujoco.MjData(self._model)
        # The inverse kinematics moves an arm of its own.
        self._plan = self._mujoco.MjData(self._model)
        self._tcp = self._model.site("tcp").id
        self._cube = self._model.body("cube").id
        self._target: Vector = np.zeros(3)
        self._down: Vector = np.zeros((3, 3))
        self._image_size = image_size
        self._renderers: dict[int, Any] = {}
        self.action_space: gymnasium.Space[Any] = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
        size = 7 if image_size is not None else 13
        row: dict[str, gymnasium.Space[Any]] = {
            "states": gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32),
            "task_descriptions": gymnasium.spaces.Text(max_length=256),
        }
        if image_size is not None:
            image = gymnasium.spaces.Box(0, 255, (image_size, image_size, 3), np.uint8)
            row |= dict.fromkeys(_CAMERAS, image)
        self.observation_space = gymnasium.spaces.Dict(row)

    def reset(self, seed: int) -> Any:
        """Put the arm home and the cube where ``seed`` says, turned at random; return the observation."""
        generator = np.random.default_rng(seed)
        self._mujoco.mj_resetData(self._model, self._data)
        angle = generator.uniform(-np.pi / 4, np.pi / 4)
        place = [*generator.uniform(*_CUBE_AREA), CUBE_HALF_SIZE]
        self._data.qpos[:] = [*HOME, *place, np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)]
        self._data.ctrl[:] = HOME
        self._mujoco.mj_forward(self._model, self._data)
        self._plan.qpos[:] = self._data.qpos
        self._target = self._data.site_xpos[self._tcp].copy()
        self._down = self._data.site_xmat[self._tcp].reshape(3, 3).copy()
        return self._features()

    def step(self, action: Any) -> SingleStep:
        """Move the hand's target by ``action[:3]`` and set the gripper by ``action[3]``: 1 is open, -1 is closed."""
        wanted = np.asarray(action, np.float64)
        self._target = np.clip(self._target + _MAX_STEP_METERS * wanted[:3], *_WORKSPACE)
        self._data.ctrl[:7] = self._solve(self._target)
        self._data.ctrl[7:] = FINGER_OPEN * (wanted[3] + 1) / 2
        self._mujoco.mj_step(self._model, self._data, _CONTROL_STEPS)
        height = float(self._data.xpos[self._cube][2]) - CUBE_HALF_SIZE
        distance = float(np.linalg.norm(self._data.site_xpos[self._tcp] - self._data.xpos[self._cube]))
        success = height > _LIFT_METERS
        reward = 0.3 * (1 - np.tanh(5 * distance)) + 0.7 * float(np.clip(height / _LIFT_METERS, 0, 1))
        return self._features(), reward, success, False, success

    def observe(self, raw: Any) -> dict[str, Any]:
        """Return ``states`` float32 [13], or [7] with ``main_images`` and ``wrist_images``, and the description.

        The states are hand position and velocity and the gripper's opening; without cameras also the cube's position
        and its way from the hand.
        """
        row = {"states": raw, "task_descriptions": DESCRIPTION}
        if self._image_size is not None:
            row["states"] = raw[:7]
            row |= {key: self._draw(camera, self._image_size) for key, camera in _CAMERAS.items()}
        return row

    def render(self) -> Frame | None:
        """Return the present image, uint8 [H, W, 3]."""
        return self._draw(_CAMERAS["main_images"], _VIDEO_SIZE)

    def close(self) -> None:
        """Free the renderers."""
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers = {}

    def _features(self) -> npt.NDArray[np.float32]:
        hand, cube = self._data.site_xpos[self._tcp], self._data.xpos[self._cube]
        jacobian = np.zeros((3, self._model.nv))
        self._mujoco.mj_jacSite(self._model, self._data, jacobian, None, self._tcp)
        velocity = jacobian @ self._data.qvel
        opening = self._data.qpos[7:9].sum(keepdims=True)
        return np.concatenate([hand, velocity, opening, cube, cube - hand]).astype(np.float32)

    def _solve(self, target: Vector) -> Vector:
        """Return joint angles [7] that bring the hand to a position, pointing down: damped least squares."""
        plan, jacobian = self._plan, np.zeros((6, self._model.nv))
        for _ in range(_IK_ITERATIONS):
            self._mujoco.mj_kinematics(self._model, plan)
            self._mujoco.mj_comPos(self._model, plan)
            self._mujoco.mj_jacSite(self._model, plan, jacobian[:3], jacobian[3:], self._tcp)
            turned = plan.site_xmat[self._tcp].reshape(3, 3)
            # The rotation vector between two nearby orientations: half the sum of their axes' cross products.
            turn = 0.5 * np.cross(turned.T, self._down.T).sum(axis=0)
            error = np.concatenate([target - plan.site_xpos[self._tcp], turn])
            arm = jacobian[:, :7]
            change = arm.T @ np.linalg.solve(arm @ arm.T + _DAMPING**2 * np.eye(6), error)
            plan.qpos[:7] = np.clip(plan.qpos[:7] + change, *self._model.jnt_range[:7].T)
        return np.array(plan.qpos[:7])

    def _draw(self, camera: str, size: int) -> Frame:
        if size not in self._renderers:
            self._renderers[size] = self._mujoco.Renderer(self._model, size, size)
        self._renderers[size].update_scene(self._data, camera)
        frame: Frame = self._renderers[size].render().copy()
        return frame


def make_frankasim_env(*, render: bool, image_size: int | None) -> FrankaSimSingleEnv:
    """Build one environment.

    Args:
        render: Whether it has to render images.
        image_size: Height and width of the cameras' images; None for states only.

    Raises:
        MissingPackageError: MuJoCo is not installed.
    """
    return FrankaSimSingleEnv(image_size=image_size, render=render)
