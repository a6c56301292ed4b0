"""OmniGibson as its adapter calls it, without Isaac Sim: activities are numbers that count actions."""

from __future__ import annotations

import gc
import random
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import torch

sim: Any = None
gm = SimpleNamespace(HEADLESS=False, USE_GPU_DYNAMICS=True, ENABLE_TRANSITION_RULES=False)
"""The settings that are made before the simulator starts."""
PROPRIOCEPTION_INDICES = {"R1Pro": {"joint_qpos": (0, 2), "eef_left_pos": (2, 5)}}
"""Where each part of what a robot feels stands."""
answers_lists = False
"""Whether environments answer as those of 2026, for several scenes."""
ENVIRONMENTS: list[Environment] = []
CAMERAS = ("left_realsense_link", "right_realsense_link", "zed_link")


class Environment:
    """The radio is on after some actions that press its button; one that drops it ends the episode."""

    def __init__(self, configs: Any) -> None:
        global sim
        assert isinstance(configs, dict)
        assert sim is None
        assert (gm.HEADLESS, gm.USE_GPU_DYNAMICS, gm.ENABLE_TRANSITION_RULES) == (True, False, True)
        sim, self.config = "running", configs
        gc.disable()
        (robot,) = configs["robots"]
        assert robot["obs_modalities"] == ["rgb", "proprio"]
        self.robot = robot["name"]
        low = np.linspace(-2, -1, 23, dtype=np.float32)
        self.action_space = gymnasium.spaces.Dict({self.robot: gymnasium.spaces.Box(low, -low, dtype=np.float32)})
        self.actions: list[np.ndarray] = []
        self.drawn: Any = None
        self.is_closed = False
        ENVIRONMENTS.append(self)

    def reset(self, get_obs: bool = True, **settings: Any) -> Any:
        assert not settings
        self.time, self.pressed = 0, 0.0
        self.drawn = (random.random(), float(np.random.rand()), float(torch.rand(1)))
        return self._answer(self._obs()), {"obs_info": {}}

    def step(self, action: np.ndarray, n_render_iterations: int = 1) -> Any:
        assert action.shape == (23,)
        assert action.dtype == np.float32
        assert n_render_iterations == 1
        self.actions.append(action)
        self.time += 1
        self.pressed += float(action[22])
        success, dropped = self.time >= 4, self.pressed > 5
        timeout = self.time >= self.config["task"]["termination_config"]["max_steps"]
        done = {"success": success, "termination_conditions": {"timeout": {"done": timeout}}}
        reward, ended = 0.5 * self.time, success or dropped
        if answers_lists:
            values = (torch.tensor([reward]), torch.tensor([ended]), torch.tensor([timeout]))
            return ([self._obs()], *values, [{"done": done}])
        return self._obs(), reward, ended, timeout, {"done": done}

    def close(self) -> None:
        self.is_closed = True

    def _obs(self) -> dict[str, Any]:
        kwargs = self.config["robots"][0].get("sensor_config", {}).get("VisionSensor", {}).get("sensor_kwargs", {})
        shape = (kwargs.get("image_height", 6), kwargs.get("image_width", 6), 4)
        seen: dict[str, Any] = {
            f"{self.robot}:{link}:Camera:0": {"rgb": torch.full(shape, 10 * number + self.time, dtype=torch.uint8)}
            for number, link in enumerate(CAMERAS)
        }
        parts = {"joint_qpos": [0.25, float(self.time)], "eef_left_pos": [1.0, 2.0, 3.0]}
        seen["proprio"] = torch.tensor(
            [number for part in self.config["robots"][0]["proprio_obs"] for number in parts[part]]
        )
        return {self.robot: seen}

    def _answer(self, answer: Any) -> Any:
        return [answer] if answers_lists else answer
