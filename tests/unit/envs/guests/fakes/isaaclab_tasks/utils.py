"""``parse_env_cfg`` of Isaac Lab 2.3.0."""

from __future__ import annotations

import importlib
from typing import Any

import gymnasium


def parse_env_cfg(
    task_name: str, device: str = "cuda:0", num_envs: int | None = None, use_fabric: bool | None = None
) -> Any:
    module, name = gymnasium.spec(task_name).kwargs["env_cfg_entry_point"].split(":")
    cfg = getattr(importlib.import_module(module), name)()
    cfg.sim.device = device
    if num_envs is not None:
        cfg.scene.num_envs = num_envs
    return cfg
