"""Recipes of each kind are valid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from changed_recipes import GRPO, SAC

from rlinf.config import validate_cfg


def test_valid_recipes_of_each_kind_pass(recipe: Callable[..., dict[str, Any]]) -> None:
    assert validate_cfg(recipe()).algorithm.adv_type == "gae"
    assert validate_cfg(recipe(GRPO)).algorithm.loss_type == "actor"
    assert validate_cfg(recipe(SAC | {"actor.global_batch_size": 300})).actor.critic_optim is None
    whole_episodes = {"env.train.auto_reset": True, "env.train.ignore_terminations": True}
    assert validate_cfg(recipe(GRPO | whole_episodes)).env.train.ignore_terminations
