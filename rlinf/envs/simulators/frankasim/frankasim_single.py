"""One simulated Franka arm before a cube as a ``SingleEnv``; imports no torch, and MuJoCo only when one is built."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from rlinf.config.schema.env import FrankaSimEnvConfig
from rlinf.envs.raw_chunk import Frame
from rlinf.envs.simulators.frankasim.frankasim_arm import FrankaArm
from rlinf.envs.simulators.frankasim.frankasim_scene import CUBE_HALF_SIZE, SCENE
from rlinf.envs.single_env import SingleEnvSpec, SingleStep

DESCRIPTION = "Pick up the red cube."
_CUBE_AREA = np.array([[0.42, -0.12], [0.58, 0.12]])
_LIFT_METERS = 0.1
"""How high the cube has to be lifted."""
_CAMERAS = {"main_images": "front", "wrist_images": "wrist"}
_VIDEO_SIZE = 256


class FrankaSimSingleEnv:
    """An arm whose hand points down and follows a target that actions move; a gripper; a cube.

    Args:
        image_size: Height and width of the cameras' images; None for states only.
        is_light: Render without shadow maps and multisampling.
        render: Whether it has to render images.
    """

    def __init__(self, *, image_size: int | None, is_light: bool, render: bool) -> None:
        self._arm = FrankaArm(SCENE, has_images=render or image_size is not None, is_light=is_light)
        self._cube = self._arm.model.body("cube").id
        self._image_size = image_size
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
        angle = generator.uniform(-np.pi / 4, np.pi / 4)
        place = [*generator.uniform(*_CUBE_AREA), CUBE_HALF_SIZE]
        self._arm.reset([*place, np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)])
        return self._features()

    def step(self, action: Any) -> SingleStep:
        """Move the hand's target by ``action[:3]`` and set the gripper by ``action[3]``: 1 is open, -1 is closed."""
        self._arm.move(np.asarray(action, np.float64))
        cube = self._arm.data.xpos[self._cube]
        height = float(cube[2]) - CUBE_HALF_SIZE
        distance = float(np.linalg.norm(self._arm.hand - cube))
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
            row |= {key: self._arm.draw(camera, self._image_size) for key, camera in _CAMERAS.items()}
        return row

    def render(self) -> Frame | None:
        """Return the present image, uint8 [H, W, 3]."""
        return self._arm.draw(_CAMERAS["main_images"], _VIDEO_SIZE)

    def close(self) -> None:
        """Free the renderers."""
        self._arm.close()

    def _features(self) -> npt.NDArray[np.float32]:
        hand, cube = self._arm.hand, self._arm.data.xpos[self._cube]
        parts = [hand, self._arm.velocity(), [self._arm.opening], cube, cube - hand]
        return np.concatenate(parts).astype(np.float32)


def make_frankasim_env(*, render: bool, image_size: int | None, is_light: bool = False) -> FrankaSimSingleEnv:
    """Build one environment.

    Args:
        render: Whether it has to render images.
        image_size: Height and width of the cameras' images; None for states only.
        is_light: Render without shadow maps and multisampling.

    Raises:
        MissingPackageError: MuJoCo is not installed.
    """
    return FrankaSimSingleEnv(image_size=image_size, is_light=is_light, render=render)


def frankasim_envs(cfg: FrankaSimEnvConfig, *, num_envs: int, first_env: int) -> SingleEnvSpec:
    """Return the environments of a section; see ``SimulatorConfig.single_envs``."""
    return SingleEnvSpec(
        env_type=cfg.env_type,
        factory=make_frankasim_env,
        kwargs={"image_size": cfg.image_size, "is_light": cfg.render_quality == "light"},
        first_env=first_env,
        num_envs=num_envs,
    )
