"""An environment: a batch of simulations. Its base class does chunked stepping, resets, truncation and metrics."""

import numpy as np
from gymnasium.spaces import Box, Dict

from rlinf.config.schema.env import EnvConfig
from rlinf.envs import StepResult, VectorEnv


class PointEnv(VectorEnv):
    """Push a point to the origin."""

    def __init__(self, cfg: EnvConfig, *, num_envs: int, first_env: int = 0) -> None:
        super().__init__(cfg, num_envs=num_envs, first_env=first_env)
        self.observation_space = Dict({"states": Box(-np.inf, np.inf, (2,), np.float32)})
        self.action_space = Box(-1.0, 1.0, (2,), np.float32)
        self.position = np.zeros((num_envs, 2), np.float32)

    def reset_idx(self, env_ids: np.ndarray, seeds: np.ndarray) -> dict[str, np.ndarray]:
        for row, seed in zip(env_ids, seeds, strict=True):
            self.position[row] = np.random.default_rng(seed).uniform(-1, 1, 2)
        return {"states": self.position[env_ids]}

    def step(self, actions: np.ndarray, active: np.ndarray | None) -> StepResult:
        before = np.linalg.norm(self.position, axis=1)
        self.position[active] += 0.1 * actions[active]
        distance = np.linalg.norm(self.position, axis=1)
        success = distance < 0.1
        return StepResult(
            obs={"states": self.position.copy()},
            rewards=before - distance,
            terminations=success,
            truncations=np.zeros_like(success),
            infos={"success": success},
        )
