"""Changes that turn the base recipe into one of another kind, and the assertion that a mistake is located."""

from __future__ import annotations

from typing import Any

import pytest

from rlinf.config import validate_cfg
from rlinf.errors import ConfigError

GRPO: dict[str, Any] = {
    "algorithm": {"adv_type": "grpo", "loss_type": "actor", "group_size": 4},
    "actor.model.add_value_head": False,
    "env.train.group_size": 4,
    "env.train.auto_reset": False,
}

SAC: dict[str, Any] = {
    "algorithm": {"adv_type": "embodied_sac", "loss_type": "embodied_sac"},
    "actor.model.add_value_head": False,
    "actor.model.add_q_head": True,
}

CNN: dict[str, Any] = {
    "actor.model": {
        "model_type": "cnn_policy",
        "image_size": [48, 48],
        "action_dim": 2,
        "discrete": True,
        "add_value_head": True,
    }
}

TD3: dict[str, Any] = SAC | {
    "algorithm": {"adv_type": "embodied_td3", "loss_type": "embodied_td3"},
    "actor.model.deterministic": True,
}

CROSSQ: dict[str, Any] = SAC | {
    "algorithm": {"adv_type": "embodied_crossq", "loss_type": "embodied_crossq"},
    "actor.model.q_head_type": "crossq",
}

REWARD: dict[str, Any] = {
    "cluster.component_placement": {"actor,rollout,env,reward": 0},
    "reward": {"rewards": {"env": {"reward_type": "env"}}},
}


def lines_about(message: str, path: str) -> str:
    """Return the lines of an error that begin with a key's path."""
    lines = [line.removeprefix("  - ") for line in message.splitlines()]
    matching = [line for line in lines if line.startswith(f"{path}:")]
    assert matching, f"no line for {path} in:\n{message}"
    return "\n".join(matching)


def assert_mended(recipe: dict[str, Any], path: str, remedy: str) -> None:
    """Assert that a recipe is refused with a line about a path that names the remedy."""
    with pytest.raises(ConfigError) as caught:
        validate_cfg(recipe)
    assert remedy in lines_about(str(caught.value), path)
