"""``pixel_reach`` with wrappers."""

from typing import Any

from rlinf.config.schema.env import (
    PixelReachEnvConfig,
    WrapperConfig,
)
from rlinf.envs import make_vector_env
from rlinf.envs.base import VectorEnv


def pixel_reach(wrappers: list[WrapperConfig], **keys: Any) -> VectorEnv:
    defaults: dict[str, Any] = {"total_num_envs": 4, "group_size": 2, "max_episode_steps": 9, "image_size": 16}
    cfg = PixelReachEnvConfig(
        env_type="pixel_reach", max_steps_per_rollout_epoch=18, wrappers=wrappers, **{**defaults, **keys}
    )
    return make_vector_env(cfg, num_envs=4)
