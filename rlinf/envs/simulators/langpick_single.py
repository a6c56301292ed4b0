"""One Franka arm before three coloured cubes, and a sentence that names one, as a ``SingleEnv``; imports no torch."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from rlinf.config.schema.env import LangPickEnvConfig
from rlinf.envs.raw_chunk import Frame
from rlinf.envs.simulators.frankasim.frankasim_arm import FrankaArm, Vector
from rlinf.envs.simulators.frankasim.frankasim_scene import CUBE_HALF_SIZE, scene_with
from rlinf.envs.single_env import SingleEnvSpec, SingleStep

COLOURS = ("red", "green", "blue")
DESCRIPTIONS = tuple(f"pick up the {colour} cube" for colour in COLOURS)
"""The task in words, by the number of its cube."""
_RGBA = ("0.85 0.15 0.1 1", "0.1 0.7 0.15 1", "0.1 0.25 0.9 1")
_SCENE = scene_with(
    dict(zip(COLOURS, _RGBA, strict=True)),
    # Half a meter from the cubes, looking down at 45 degrees: 7 mm a pixel at 64 pixels.
    '    <camera name="near" pos="0.98 0 0.52" xyaxes="0 1 0 -0.707 0 0.707" fovy="38"/>\n',
)
_CAMERA = "near"
_VIDEO_SIZE = 256
_CUBE_AREA = np.array([[0.42, -0.12], [0.58, 0.12]])
_LEAST_DISTANCE = 0.08
"""Between the cubes' centres: the open fingers fit between them."""
_MAX_TURN = np.pi / 8
_LIFT_METERS = 0.06
"""How high the cube has to be lifted."""
_PUSH = 2.0
"""Largest push of a disturbance along an axis, in units of the action."""
_HAND_AREA = np.array([[0.38, -0.18, 0.06], [0.62, 0.18, 0.3]])


class LangPickSingleEnv:
    """The cube that the sentence names is to be lifted; others are in the way.

    Args:
        image_size: Height and width of the camera's images.
        is_light: Render without shadow maps and multisampling.
        shows_objects: Whether observations have ``objects``.
        random_hand: Whether episodes begin with the hand anywhere, rather than at home.
        disturbance: Probability that a step pushes the hand's target.
    """

    def __init__(
        self, *, image_size: int, is_light: bool, shows_objects: bool, random_hand: bool, disturbance: float
    ) -> None:
        self._arm = FrankaArm(_SCENE, has_images=True, is_light=is_light)
        self._cubes = [self._arm.model.body(name).id for name in COLOURS]
        self._image_size, self._shows_objects = image_size, shows_objects
        self._random_hand, self._disturbance = random_hand, disturbance
        self._target = 0
        self._generator = np.random.default_rng(0)
        self.action_space: gymnasium.Space[Any] = gymnasium.spaces.Box(-1.0, 1.0, (4,), np.float32)
        row: dict[str, gymnasium.Space[Any]] = {
            "states": gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32),
            "main_images": gymnasium.spaces.Box(0, 255, (image_size, image_size, 3), np.uint8),
            "task_descriptions": gymnasium.spaces.Text(max_length=64),
        }
        if shows_objects:
            row["objects"] = gymnasium.spaces.Box(-np.inf, np.inf, (9,), np.float32)
        self.observation_space = gymnasium.spaces.Dict(row)

    def reset(self, seed: int) -> Any:
        """Put cubes, hand and task where ``seed`` says, which also names all later disturbances."""
        self._generator = generator = np.random.default_rng(seed)
        self._target = int(generator.integers(len(COLOURS)))
        objects: list[float] = []
        for x, y in _places(generator):
            half = generator.uniform(-_MAX_TURN, _MAX_TURN) / 2
            objects += [x, y, CUBE_HALF_SIZE, np.cos(half), 0.0, 0.0, np.sin(half)]
        self._arm.reset(objects)
        if self._random_hand:
            self._arm.place_hand(generator.uniform(*_HAND_AREA))
        return None

    def step(self, action: Any) -> SingleStep:
        """Move the hand's target by ``action[:3]`` (0.03 m) and set the gripper by ``action[3]``: 1 opens, -1 closes.

        The reward is a state's: up to 0.3 for being near the cube, 0.2 for its height and 0.5 for success.
        """
        wanted = np.array(action, np.float64)
        if self._disturbance and self._generator.random() < self._disturbance:
            wanted[:3] += self._generator.uniform(-_PUSH, _PUSH, 3)
        self._arm.move(wanted)
        cube = self._arm.data.xpos[self._cubes[self._target]]
        lifted = float(np.clip((cube[2] - CUBE_HALF_SIZE) / _LIFT_METERS, 0.0, 1.0))
        success = lifted >= 1.0
        distance = float(np.linalg.norm(self._arm.hand - cube))
        reward = 0.3 * (1 - np.tanh(5 * distance)) + 0.2 * lifted + 0.5 * float(success)
        return None, reward, success, False, success

    def observe(self, raw: Any) -> dict[str, Any]:
        """Render the camera's image, which is done only here.

        Returns:
            ``states`` float32 [4], hand and opening; ``main_images``; the sentence; maybe ``objects`` float32 [9], the
            cubes' positions.
        """
        del raw
        row: dict[str, Any] = {
            "states": np.array([*self._arm.hand, self._arm.opening], np.float32),
            "main_images": self._arm.draw(_CAMERA, self._image_size),
            "task_descriptions": DESCRIPTIONS[self._target],
        }
        if self._shows_objects:
            row["objects"] = self._arm.data.xpos[self._cubes].astype(np.float32).reshape(-1)
        return row

    def render(self) -> Frame | None:
        """Return the present image, uint8 [H, W, 3]."""
        return self._arm.draw(_CAMERA, _VIDEO_SIZE)

    def close(self) -> None:
        """Free the renderers."""
        self._arm.close()


def _places(generator: np.random.Generator) -> npt.NDArray[np.float64]:
    """Return where the cubes are, [3, 2], apart from each other."""
    while True:
        places: Vector = generator.uniform(_CUBE_AREA[0], _CUBE_AREA[1], (len(COLOURS), 2))
        gaps = np.linalg.norm(places - np.roll(places, 1, 0), axis=-1)
        if gaps.min() >= _LEAST_DISTANCE:
            return places


def make_langpick_env(*, render: bool, **kwargs: Any) -> LangPickSingleEnv:
    """Build one environment; it renders images anyway.

    Raises:
        MissingPackageError: MuJoCo is not installed.
    """
    del render
    return LangPickSingleEnv(**kwargs)


def langpick_envs(cfg: LangPickEnvConfig, *, num_envs: int, first_env: int) -> SingleEnvSpec:
    """Return the environments of a section; see ``SimulatorConfig.single_envs``."""
    return SingleEnvSpec(
        env_type=cfg.env_type,
        factory=make_langpick_env,
        kwargs={
            "image_size": cfg.image_size,
            "is_light": cfg.render_quality == "light",
            "shows_objects": cfg.show_objects,
            "random_hand": cfg.random_hand,
            "disturbance": cfg.disturbance,
        },
        first_env=first_env,
        num_envs=num_envs,
    )
