"""Configuration of robosuite's tasks."""

from typing import Any

from rlinf.config.schema.env import RobosuiteEnvConfig


def robosuite_config(**kwargs: Any) -> RobosuiteEnvConfig:
    defaults: dict[str, Any] = {
        "env_type": "robosuite",
        "total_num_envs": 2,
        "group_size": 2,
        "max_episode_steps": 5,
        "max_steps_per_rollout_epoch": 10,
        "render_quality": "light",
    }
    return RobosuiteEnvConfig(**{**defaults, **kwargs})
