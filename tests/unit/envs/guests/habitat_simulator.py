"""habitat-lab as its adapter calls it, without habitat-sim: houses are lines, and the agent walks along one."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import numpy as np

ENVS: list[Env] = []
NAMES = ("stop", "move_forward", "turn_left", "turn_right")


def get_config(config_path: str, overrides: list[str] | None = None, configs_dir: str = "") -> Any:
    settings = dict(text.split("=", 1) for text in overrides or [])
    return SimpleNamespace(path=config_path, settings=settings)


class Env:
    """Five episodes; to stop within the success distance of the goal is a success."""

    def __init__(self, config: Any, dataset: Any = None) -> None:
        assert dataset is None
        self.config = config
        self.limit = int(config.settings.get("habitat.environment.max_episode_steps", 500))
        self.near = float(config.settings.get("habitat.task.measurements.success.success_distance", 0.2))
        self.episodes = [
            SimpleNamespace(episode_id=str(number), goal=1.0 + number, text=f"walk {number + 1} m ahead")
            for number in range(5)
        ]
        self._current, self._changed, self.episode_over = self.episodes[0], True, False
        self.actions: list[str] = []
        self.noise, self.is_closed = 0.0, False
        ENVS.append(self)

    @property
    def current_episode(self) -> Any:
        return self._current

    @current_episode.setter
    def current_episode(self, episode: Any) -> None:
        self._current, self._changed = episode, True

    def seed(self, seed: int) -> None:
        self.noise = random.Random(seed).random()

    def reset(self) -> dict[str, Any]:
        assert self._changed, "the next episode of the iterator would follow"
        self._changed, self.episode_over = False, False
        self.place, self.walked, self.steps, self.is_stopped = 0.0, 0.0, 0, False
        return self._obs()

    def step(self, action: int | str | dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        assert not kwargs
        assert not self.episode_over, "Episode over, call reset before calling step"
        assert not self._changed, "Episode was changed, call reset before stepping"
        assert action in NAMES
        self.actions.append(str(action))
        self.steps += 1
        if action == "stop":
            self.is_stopped = True
        elif action == "move_forward":
            self.place += 0.25
            self.walked += 0.25
        self.episode_over = self.is_stopped or (self.limit != 0 and self.steps >= self.limit)
        return self._obs()

    def get_metrics(self) -> dict[str, Any]:
        distance = abs(self._current.goal - self.place)
        success = float(self.is_stopped and distance < self.near)
        spl = success * self._current.goal / max(self._current.goal, self.walked)
        return {"distance_to_goal": distance, "success": success, "spl": spl}

    def close(self) -> None:
        self.is_closed = True

    def _obs(self) -> dict[str, Any]:
        return {
            "rgb": np.full((2, 3, 3), self.steps, np.uint8),
            "depth": np.full((2, 3, 1), self.place / 10, np.float32),
            "instruction": {"text": self._current.text, "tokens": [1, 2], "trajectory_id": 7},
        }
