"""A recipe that is valid as it stands; tests change one thing at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

_BASE: dict[str, Any] = {
    "cluster": {"num_nodes": 1, "component_placement": {"actor,rollout,env": 0}},
    "algorithm": {"adv_type": "gae", "loss_type": "actor_critic"},
    "env": {
        "train": {
            "env_type": "gymnasium",
            "init_params": {"id": "CartPole-v1"},
            "total_num_envs": 8,
            "max_episode_steps": 100,
            "max_steps_per_rollout_epoch": 100,
        },
        "eval": {
            "env_type": "gymnasium",
            "init_params": {"id": "CartPole-v1"},
            "total_num_envs": 4,
            "max_episode_steps": 100,
            "max_steps_per_rollout_epoch": 100,
        },
    },
    "actor": {
        "model": {"model_type": "mlp_policy", "obs_dim": 4, "action_dim": 2, "add_value_head": True},
        "global_batch_size": 400,
        "micro_batch_size": 100,
    },
}


@pytest.fixture
def recipe() -> Callable[..., dict[str, Any]]:
    """Return a function that makes the base recipe with values set (or ``"DELETE"``) at dotted paths."""

    def make(changes: dict[str, Any] | None = None) -> dict[str, Any]:
        result = copy.deepcopy(_BASE)
        for path, value in (changes or {}).items():
            *parents, last = path.split(".")
            section = result
            for name in parents:
                section = section.setdefault(name, {})
            if value == "DELETE":
                del section[last]
            else:
                section[last] = copy.deepcopy(value)
        return result

    return make
