"""What is wrong with a recipe of a language model that is changed."""

from __future__ import annotations

from rlinf.config import load_recipe, validate_cfg
from rlinf.errors import ConfigError

RECIPE = "tiny_math_grpo"
WITH_INFERENCE = ("+inference={}", "cluster.component_placement={actor: 0, rollout: 0, reward: 0, inference: 0}")
VALUES = ("algorithm.adv_type=gae", "algorithm.loss_type=actor_critic", "actor.model.add_value_head=true")


def problems(*overrides: str) -> list[str]:
    try:
        validate_cfg(load_recipe(RECIPE, overrides))
    except ConfigError as error:
        return [line.strip().removeprefix("- ") for line in str(error).splitlines()]
    return []
