"""A hand whose fingers the last of seven numbers opens at -1 and closes at 1, as robosuite's; and who drives it."""

from typing import Any

import gymnasium
import numpy as np
import torch
from libero_configs import libero_config

from rlinf.config.schema.env import EnvConfig
from rlinf.data.messages.embodied import Observation
from rlinf.envs.base import StepResult, VectorEnv


def spoken_config(**kwargs: Any) -> EnvConfig:
    """Return keys of two hands for six steps."""
    defaults: dict[str, Any] = {"group_size": 1, "max_episode_steps": 6, "max_steps_per_rollout_epoch": 12}
    return libero_config(**{**defaults, **kwargs})


class SpokenHand(VectorEnv):
    """``states`` [B, 3]: the opening (0 to 1), the way that the hand went, and steps."""

    def __init__(self, cfg: EnvConfig, *, num_envs: int, first_env: int = 0) -> None:
        super().__init__(cfg, num_envs=num_envs, first_env=first_env)
        self.observation_space = gymnasium.spaces.Dict({"states": gymnasium.spaces.Box(-9, 9, (3,), np.float32)})
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (7,), np.float32)
        self.states = np.zeros((num_envs, 3), np.float32)
        self.taken: list[Any] = []

    def reset_idx(self, env_ids: Any, seeds: Any) -> dict[str, Any]:
        del seeds
        self.states[env_ids] = [0.5, 0.0, 0.0]
        return {"states": self.states[env_ids].copy()}

    def step(self, actions: Any, active: Any) -> StepResult:
        self.taken.append(actions[:, 6].tolist())
        self.states[active, 0] = np.clip(self.states[active, 0] - 0.25 * actions[active, 6], 0.0, 1.0)
        self.states[active, 1] += actions[active, 0]
        self.states[active, 2] += 1
        nothing = np.zeros(self.num_envs, np.bool_)
        return StepResult({"states": self.states.copy()}, self.states[:, 0].copy(), nothing, nothing)


class NativeCloser:
    """A scripted policy that closes such a hand for three steps and then opens it, and goes ahead meanwhile."""

    def __init__(self, env: EnvConfig) -> None:
        self.env = env

    def __call__(self, obs: Observation) -> torch.Tensor:
        actions = torch.zeros(len(obs["states"]), 1, 7)
        actions[:, 0, 0] = 0.25
        actions[:, 0, 6] = torch.where(obs["states"][:, 2] < 3, 1.0, -1.0)
        return actions
