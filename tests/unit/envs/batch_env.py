"""The toy environment as a batch simulator that cannot freeze single rows, and the configuration of the tests."""

from typing import Any

import gymnasium
import numpy as np
import toy_envs

from rlinf.config.schema.env import EnvConfig
from rlinf.envs.base import StepResult, VectorEnv
from rlinf.envs.single_env_vector import SingleEnvVectorEnv


def make_config(**kwargs: Any) -> EnvConfig:
    defaults: dict[str, Any] = {
        "env_type": "toy",
        "total_num_envs": 4,
        "max_episode_steps": 6,
        "max_steps_per_rollout_epoch": 12,
    }
    return EnvConfig(**{**defaults, **kwargs})


class BatchEnv(VectorEnv):
    """Steps all rows, also those at rest, and reports nonsense for them."""

    def __init__(self, cfg: EnvConfig, *, num_envs: int, first_env: int = 0) -> None:
        super().__init__(cfg, num_envs=num_envs, first_env=first_env)
        self.observation_space = gymnasium.spaces.Dict(
            {
                "states": gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32),
                "task_descriptions": gymnasium.spaces.Text(32),
            }
        )
        self.action_space = toy_envs.ACTION_SPACE
        self.seeds = np.zeros(num_envs, np.int64)
        self.time = np.zeros(num_envs, np.int64)

    def reset_idx(self, env_ids: Any, seeds: Any) -> dict[str, Any]:
        self.seeds[env_ids] = seeds
        self.time[env_ids] = 0
        return {
            key: [v[i] for i in env_ids] if isinstance(v, list) else v[env_ids] for key, v in self.observe().items()
        }

    def step(self, actions: Any, active: Any) -> StepResult:
        self.time += 1
        return StepResult(
            obs=self.observe(),
            rewards=actions[:, 0] + self.time,
            terminations=self.time >= 3 + self.seeds % 5,
            truncations=np.zeros(self.num_envs, np.bool_),
            infos={"success": self.time == 2},
        )

    def observe(self) -> dict[str, Any]:
        states = np.stack([self.seeds % 1000, self.time], axis=1).astype(np.float32)
        return {"states": states, "task_descriptions": [f"count from {seed % 1000}" for seed in self.seeds]}

    def render_idx(self, env_ids: list[int]) -> Any:
        return [np.full((32, 48, 3), self.time[row], np.uint8) for row in env_ids]


def make_single(cfg: EnvConfig, *, num_envs: int, first_env: int = 0, **kwargs: Any) -> SingleEnvVectorEnv:
    return SingleEnvVectorEnv(
        cfg, num_envs=num_envs, first_env=first_env, factory=toy_envs.make_counting_env, kwargs=kwargs
    )
