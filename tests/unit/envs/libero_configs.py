"""Configuration of LIBERO's tasks; tests that build one are skipped where its assets are not there."""

from typing import Any

import pytest

from rlinf.config.schema.env import LiberoEnvConfig
from rlinf.envs.simulators.libero.libero_assets import find_assets
from rlinf.errors import ConfigError


def libero_config(**kwargs: Any) -> LiberoEnvConfig:
    defaults: dict[str, Any] = {
        "env_type": "libero",
        "task_suite_name": "libero_object",
        "total_num_envs": 2,
        "group_size": 2,
        "max_episode_steps": 5,
        "max_steps_per_rollout_epoch": 10,
        "image_size": 32,
        "render_quality": "light",
    }
    return LiberoEnvConfig(**{**defaults, **kwargs})


def needs_assets() -> None:
    """Skip a test where LIBERO's assets are not installed."""
    try:
        find_assets(None)
    except ConfigError as error:
        pytest.skip(str(error))
