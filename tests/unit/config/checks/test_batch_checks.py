"""Sizes that must divide each other are located, with numbers that do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from changed_recipes import SAC, assert_mended

# (changes to the base recipe, path at the start of the line, remedy within the line)
MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    (
        {"env.train.total_num_envs": 6, "rollout": {"pipeline_stage_num": 4}, "actor.global_batch_size": 600},
        "env.train.total_num_envs",
        "1 env rank x rollout.pipeline_stage_num 4 x env.train.group_size 1 = 4. Set it to 4 or 8.",
    ),
    (
        {"cluster.component_placement": {"actor,env": 0, "rollout": "0:0-2"}},
        "env.train.total_num_envs",
        "3 rollout ranks x rollout.pipeline_stage_num 1 = 3. Set it to 6 or 9.",
    ),
    ({"env.train.num_env_processes": 9}, "env.train.num_env_processes", "Set it to 8."),
    (
        {"actor.model.num_action_chunks": 3, "env.eval": None, "actor.global_batch_size": 264},
        "env.train.max_steps_per_rollout_epoch",
        "100 / 3 = 33.33). Set it to 99 or 102.",
    ),
    (
        {"actor.global_batch_size": 300},
        "actor.global_batch_size",
        "(100 steps / 1 actions per chunk) x 8 environments x 1 rollout epochs = 800. Set it to",
    ),
    (
        {"actor.micro_batch_size": 150},
        "actor.micro_batch_size",
        "micro_batch_size 150 x 1 actor rank = 150. Set actor.micro_batch_size to",
    ),
    (SAC | {"actor.micro_batch_size": 150}, "actor.micro_batch_size", "Set actor.micro_batch_size to"),
]


@pytest.mark.parametrize(("changes", "path", "remedy"), MISTAKES, ids=lambda value: str(value)[:60])
def test_a_mistake_is_located_with_its_remedy(
    recipe: Callable[..., dict[str, Any]], changes: dict[str, Any], path: str, remedy: str
) -> None:
    assert_mended(recipe(changes), path, remedy)
