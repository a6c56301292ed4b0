"""``env_type: pixel_reach``: a gripper seen from above moves over a green disc; rendered by numpy in microseconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from rlinf.config.schema.env import PixelReachEnvConfig
from rlinf.envs.base import StepResult, VectorEnv
from rlinf.envs.raw_chunk import BoolArray, FloatArray, Frame, IntArray, RawObservation

DESCRIPTION = "reach the green disc"
"""The task in words."""
_STEP = 0.15
"""Largest way of the gripper in one step; the table reaches from -1 to 1."""
_TOUCH = 0.12
"""Distance of the centres below which the goal is reached: the gripper is then within the green disc."""
_RADII = np.array([0.2, 0.2, 0.08], np.float32)
_COLOURS = np.array([[40, 70, 220], [40, 200, 60], [235, 60, 50]], np.uint8)
"""Of the distractor, the goal and the gripper, each painted over the ones before."""
_WRIST_EXTENT = 0.5
"""The wrist camera sees so far around the gripper; the main camera sees the whole table."""
_VIDEO_SCALE = 4
"""Enlargement of the images in videos."""


class PixelReachEnv(VectorEnv):
    """A table with a gripper, a goal and a distractor at random places, under light of random strength.

    ``states`` is the gripper's position, float32 [B, 2]: where the goal is, only the images show (unless
    ``goal_in_states``). ``task_descriptions`` is the same sentence for all. An action moves the gripper; the reward is
    minus the distance to the goal, and reaching it ends the episode.

    Args:
        cfg: Its configuration.
        num_envs: ``B``.
        first_env: Index of the first of them among all ``cfg.total_num_envs``.
    """

    cfg: PixelReachEnvConfig

    def __init__(self, cfg: PixelReachEnvConfig, *, num_envs: int, first_env: int = 0) -> None:
        super().__init__(cfg, num_envs=num_envs, first_env=first_env)
        image = spaces.Box(0, 255, (cfg.image_size, cfg.image_size, 3), np.uint8)
        states = spaces.Box(-1.0, 1.0, (4 if cfg.goal_in_states else 2,), np.float32)
        wrist = {"wrist_images": image} if cfg.wrist_camera else {}
        task = spaces.Text(max_length=len(DESCRIPTION))
        self.observation_space = spaces.Dict(
            {"states": states, "main_images": image, **wrist, "task_descriptions": task}
        )
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self._places: FloatArray = np.zeros((num_envs, 3, 2), np.float32)
        self._light: FloatArray = np.ones(num_envs, np.float32)

    def reset_idx(self, env_ids: IntArray, seeds: IntArray) -> RawObservation:
        """See ``VectorEnv``."""
        for row, seed in zip(env_ids.tolist(), seeds.tolist(), strict=True):
            generator = np.random.default_rng(seed)
            self._places[row] = generator.uniform(-0.9, 0.9, (3, 2))
            self._light[row] = generator.uniform(0.6, 1.0)
        return self._observe(env_ids)

    def step(self, actions: Any, active: BoolArray) -> StepResult:
        """See ``VectorEnv``."""
        gripper = self._places[:, 2]
        gripper[active] = np.clip(gripper[active] + _STEP * actions[active], -1.0, 1.0)
        distance = np.linalg.norm(gripper - self._places[:, 1], axis=-1)
        success = distance < _TOUCH
        return StepResult(
            obs=self._observe(np.arange(self.num_envs)),
            rewards=-distance,
            terminations=success,
            truncations=np.zeros_like(success),
            infos={"success": success},
        )

    def render_idx(self, env_ids: list[int]) -> list[Frame]:
        """See ``VectorEnv``: the main camera."""
        images = self._draw(np.array(env_ids), np.zeros((len(env_ids), 2), np.float32), 1.0)
        return list(images.repeat(_VIDEO_SCALE, axis=1).repeat(_VIDEO_SCALE, axis=2))

    def _observe(self, rows: IntArray) -> RawObservation:
        places = self._places[rows]
        states = places[:, [2, 1]].reshape(len(rows), 4) if self.cfg.goal_in_states else places[:, 2].copy()
        obs: RawObservation = {"states": states, "main_images": self._draw(rows, np.zeros_like(places[:, 2]), 1.0)}
        obs["task_descriptions"] = [DESCRIPTION] * len(rows)
        if self.cfg.wrist_camera:
            obs["wrist_images"] = self._draw(rows, places[:, 2], _WRIST_EXTENT)
        return obs

    def _draw(self, rows: IntArray, centres: FloatArray, extent: float) -> npt.NDArray[np.uint8]:
        """Return what cameras above ``centres`` [F, 2] see, uint8 [F, H, W, 3]; ``extent`` is half their width."""
        size = self.cfg.image_size
        ticks = extent * ((np.arange(size, dtype=np.float32) + 0.5) * (2.0 / size) - 1.0)
        x, y = ticks + centres[:, :1], ticks + centres[:, 1:]
        images = np.full((len(rows), size, size, 3), 120, np.uint8)
        for number, (radius, colour) in enumerate(zip(_RADII, _COLOURS, strict=True)):
            place = self._places[rows, number]
            squares = (x - place[:, :1])[:, None, :] ** 2 + (y - place[:, 1:])[:, :, None] ** 2
            images[squares < radius**2] = colour
        lit: npt.NDArray[np.uint8] = (images * self._light[rows, None, None, None]).astype(np.uint8)
        return lit
