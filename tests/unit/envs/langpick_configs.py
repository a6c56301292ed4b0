"""Configuration of the arm before three cubes."""

from typing import Any

from rlinf.config.schema.env import LangPickEnvConfig


def langpick_config(**kwargs: Any) -> LangPickEnvConfig:
    defaults: dict[str, Any] = {
        "env_type": "langpick",
        "total_num_envs": 4,
        "group_size": 2,
        "image_size": 32,
        "max_episode_steps": 7,
        "max_steps_per_rollout_epoch": 14,
    }
    return LangPickEnvConfig(**{**defaults, **kwargs})
