"""Environments whose every number can be computed by hand; imports no torch, so the pool's processes start fast.

Episode from seed s: observation (s % 1000, t), reward ``action + t``, success at t = 2, termination at ``3 + s % 5``.
"""

import os
import time
from typing import Any

import gymnasium
import numpy as np

from rlinf.envs.simulators.gymnasium_single import GymnasiumSingleEnv

ACTION_SPACE = gymnasium.spaces.Box(-10.0, 10.0, (1,), np.float32)


def episode_length(seed: int) -> int:
    return 3 + seed % 5


class CountingEnv(gymnasium.Env[Any, Any]):
    """The single environment; misbehaves at a step where asked to."""

    def __init__(
        self, *, fail_at: int = -1, crash_at: int = -1, hang_at: int = -1, render_mode: str | None = None
    ) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = ACTION_SPACE
        self.render_mode = render_mode
        self.fail_at, self.crash_at, self.hang_at = fail_at, crash_at, hang_at
        self.seed, self.time = 0, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.seed, self.time = int(seed or 0), 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        if self.time == self.fail_at:
            raise ValueError("the joint exploded")
        if self.time == self.crash_at:
            os._exit(3)
        if self.time == self.hang_at:
            time.sleep(600)
        ended = self.time >= episode_length(self.seed)
        return self._obs(), float(action[0]) + self.time, ended, False, {"success": self.time == 2}

    def render(self) -> Any:
        return np.full((32, 48, 3), self.time, np.uint8)

    def _obs(self) -> Any:
        return np.array([self.seed % 1000, self.time], np.float64)


def make_counting_env(*, render: bool, **kwargs: Any) -> GymnasiumSingleEnv:
    return GymnasiumSingleEnv(CountingEnv(render_mode="rgb_array" if render else None, **kwargs))


def make_broken_env(*, render: bool) -> GymnasiumSingleEnv:
    raise OSError("no such robot")
