"""Length, evaluation, schedules and settings that contradict each other are located, with a remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from changed_recipes import CNN, REWARD, SAC, assert_mended

from rlinf.config import validate_cfg
from rlinf.errors import ConfigError

# (changes to the base recipe, path at the start of the line, remedy within the line)
MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    (
        SAC | {"actor.critic_optim": {"lr_scheduler": "cosine"}},
        "actor.critic_optim.total_training_steps",
        "actor.critic_optim.lr_scheduler=constant",
    ),
    ({"runner": {"val_check_interval": 0}}, "runner.val_check_interval", "Set it to -1"),
    ({"runner": {"max_steps": -2}}, "runner.max_steps", "integer > 0, or -1"),
    ({"runner": {"val_check_interval": 5}, "env.eval": None}, "env.eval", "Add the section"),
    ({"runner": {"keep_best": "eval/return"}}, "runner.keep_best", "Set runner.val_check_interval"),
    ({"runner": {"stop_at": {"eval/return": 1}}}, "runner.stop_at", "Set runner.val_check_interval"),
    (
        {"env.train.use_ordered_reset_state_ids": True, "env.eval.use_ordered_reset_state_ids": True},
        "env.train.use_ordered_reset_state_ids",
        "evaluated where it has learned",
    ),
    (
        {"env.eval.num_start_states": 8},
        "env.eval.num_start_states",
        "Set env.eval.use_ordered_reset_state_ids=true",
    ),
    ({"env.train.num_start_states": 8}, "env.train.num_start_states", "not used by training"),
    (
        {"env.eval.max_steps_per_rollout_epoch": 50},
        "env.eval.max_steps_per_rollout_epoch",
        "Set it to at least 100",
    ),
    (
        {"actor.optim": {"lr_scheduler": "cosine"}},
        "actor.optim.total_training_steps",
        "actor.optim.lr_scheduler=constant",
    ),
    (
        {"actor.optim": {"lr_scheduler": "linear", "total_training_steps": 9, "lr_warmup_steps": 9}},
        "actor.optim.lr_warmup_steps",
        "Lower it",
    ),
    ({"runner": {"logger": {"experiment_name": "a/b"}}}, "runner.logger.experiment_name", "without slashes"),
    ({"rollout": {"group_name": "ActorGroup"}}, "rollout.group_name", "actor.group_name"),
    ({"env.train.init_params": {}}, "env.train.init_params.id", "for example CartPole-v1"),
    (
        {"env.train.init_params.max_episode_steps": 5},
        "env.train.init_params.max_episode_steps",
        "write env.train.max_episode_steps",
    ),
    (REWARD | {"reward.group_name": "EnvGroup"}, "reward.group_name", "env.group_name"),
    (CNN | {"actor.model.image_size": [48]}, "actor.model.image_size", "[height, width]"),
    (CNN | {"actor.model.image_size": [48, 8]}, "actor.model.image_size", "at least 16 pixels"),
    (CNN | {"actor.model.image_keys": []}, "actor.model.image_keys", "[main_images]"),
]


@pytest.mark.parametrize(("changes", "path", "remedy"), MISTAKES, ids=lambda value: str(value)[:60])
def test_a_mistake_is_located_with_its_remedy(
    recipe: Callable[..., dict[str, Any]], changes: dict[str, Any], path: str, remedy: str
) -> None:
    assert_mended(recipe(changes), path, remedy)


@pytest.mark.parametrize(
    ("sizes", "played"),
    [
        ({"total_num_envs": 5}, "5 groups of 1 x 1 rollout epochs x 1 episodes that are counted = 5 episodes"),
        ({"total_num_envs": 5, "rollout_epoch": 3}, "= 15 episodes from 15 start states"),
        ({"total_num_envs": 7, "rollout_epoch": 2}, "= 14 episodes from 14 start states"),
        ({"total_num_envs": 14, "group_size": 2}, "= 14 episodes from 7 start states"),
        ({"total_num_envs": 8, "group_size": 2}, "= 8 episodes from 4 start states"),
        ({"total_num_envs": 7, "group_size": 7}, "= 7 episodes from 1 start states"),
    ],
)
def test_start_states_that_are_skipped_or_repeated_are_refused(
    recipe: Callable[..., dict[str, Any]], sizes: dict[str, int], played: str
) -> None:
    keys = {"num_start_states": 7, "use_ordered_reset_state_ids": True, "auto_reset": False, **sizes}
    changes = {f"env.eval.{name}": value for name, value in keys.items()}
    with pytest.raises(ConfigError) as caught:
        validate_cfg(recipe(changes))
    assert played in str(caught.value)
    right = {**changes, "env.eval.total_num_envs": 7, "env.eval.group_size": 1, "env.eval.rollout_epoch": 1}
    validate_cfg(recipe(right))
    validate_cfg(recipe({**right, "env.eval.total_num_envs": 8}))  # one is left over, and does not count
    validate_cfg(recipe({**right, "env.eval.total_num_envs": 4, "env.eval.rollout_epoch": 2}))
