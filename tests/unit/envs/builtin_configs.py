"""Configurations of Gymnasium and MetaWorld environments."""

from typing import Any

from rlinf.config.schema.env import GymnasiumEnvConfig, MetaWorldEnvConfig


def gymnasium_config(env_id: str = "CartPole-v1", **kwargs: Any) -> GymnasiumEnvConfig:
    defaults: dict[str, Any] = {
        "env_type": "gymnasium",
        "total_num_envs": 4,
        "group_size": 2,
        "max_episode_steps": 30,
        "max_steps_per_rollout_epoch": 60,
        "init_params": {"id": env_id},
    }
    return GymnasiumEnvConfig(**{**defaults, **kwargs})


def metaworld_config(**kwargs: Any) -> MetaWorldEnvConfig:
    defaults: dict[str, Any] = {
        "env_type": "metaworld",
        "total_num_envs": 4,
        "group_size": 2,
        "max_episode_steps": 7,
        "max_steps_per_rollout_epoch": 14,
    }
    return MetaWorldEnvConfig(**{**defaults, **kwargs})
