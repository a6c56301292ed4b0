"""A plug-in with environments that misbehave in one way each (named by ``RLINF_EXT_MODULE`` in tests)."""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium
import numpy as np

from rlinf.config.schema.env import EnvConfig
from rlinf.envs import register_env
from rlinf.envs.base import StepResult, VectorEnv


@dataclass(frozen=True, kw_only=True)
class BrokenEnvConfig(EnvConfig):
    fault: str


class BrokenEnv(VectorEnv):
    """Counts its steps in the observation, and breaks as ``fault`` says at the 37th."""

    observation_space = gymnasium.spaces.Dict({"states": gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)})
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, cfg: EnvConfig, *, num_envs: int, first_env: int = 0) -> None:
        if cfg.fault == "init":
            raise ValueError("the robot is not plugged in")
        super().__init__(cfg, num_envs=num_envs, first_env=first_env)
        self.count = 0

    def reset_idx(self, env_ids: np.ndarray, seeds: np.ndarray) -> dict[str, np.ndarray]:
        return {"states": np.zeros((len(env_ids), 4), np.float32)}

    def step(self, actions: np.ndarray, active: np.ndarray | None) -> StepResult:
        self.count += 1
        if self.count == 37 and self.cfg.fault == "step":
            raise ValueError("the gripper is stuck")
        reward = np.nan if self.count >= 37 and self.cfg.fault == "reward" else 1.0
        flags = np.zeros(self.num_envs, np.bool_)
        states = np.full((self.num_envs, 4), self.count / 100, np.float32)
        return StepResult({"states": states}, np.full(self.num_envs, reward), flags, flags)


def register() -> None:
    register_env("broken", BrokenEnv, config=BrokenEnvConfig)
