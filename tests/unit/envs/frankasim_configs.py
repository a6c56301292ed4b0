"""Configuration and actions of the simulated arm."""

from typing import Any

import torch

from rlinf.config.schema.env import FrankaSimEnvConfig
from rlinf.envs.base import VectorEnv


def frankasim_config(**kwargs: Any) -> FrankaSimEnvConfig:
    defaults: dict[str, Any] = {
        "env_type": "frankasim",
        "total_num_envs": 4,
        "group_size": 2,
        "max_episode_steps": 7,
        "max_steps_per_rollout_epoch": 14,
    }
    return FrankaSimEnvConfig(**{**defaults, **kwargs})


def play(env: VectorEnv, *, closes: bool) -> list[dict[str, float]]:
    """Go above the cube, down to it, close the gripper (or not) and rise; return how the episodes went."""
    states = env.reset(0)["states"]
    above = torch.tensor([0.0, 0.0, 0.06])
    still, up = torch.zeros(len(states), 3), torch.tensor([0.0, 0.0, 1.0]).expand(len(states), 3)
    episodes: list[dict[str, float]] = []
    for number in range(50):
        way = states[:, 10:13]
        move = (way + above) * 30 if number < 15 else way * 30 if number < 25 else still if number < 31 else up
        grip = torch.full((len(states), 1), -1.0 if closes and number >= 25 else 1.0)
        step = env.chunk_step(torch.cat([move.clamp(-1, 1), grip], 1)[:, None])
        states, episodes = step.obs["states"], [*episodes, *step.episodes]
    return episodes
