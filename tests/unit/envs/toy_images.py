"""A registered environment that shows images; imports no torch, so the pool's processes start fast."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np


class ImageEnv(gymnasium.Env[Any, Any]):
    """Shows its step count as the shade of every pixel but the first, which is its seed."""

    def __init__(self, *, size: int = 16, render_mode: str | None = None) -> None:
        self.shape = (size, size + 2, 3)
        self.observation_space = gymnasium.spaces.Box(0, 255, self.shape, np.uint8)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.render_mode = render_mode
        self.seed, self.time = 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.seed, self.time = int(seed or 0), 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return self._obs(), float(action), False, False, {}

    def render(self) -> Any:
        return self._obs()

    def _obs(self) -> Any:
        image = np.full(self.shape, self.time % 256, np.uint8)
        image[0, 0] = self.seed % 256
        return image


gymnasium.register("ToyImages-v0", ImageEnv)
