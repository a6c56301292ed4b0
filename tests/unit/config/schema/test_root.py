"""Names of worker groups and sizes of steps, read off whole recipes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from changed_recipes import REWARD
from reasoning_problems import RECIPE, WITH_INFERENCE

from rlinf.config import load_recipe, validate_cfg


def test_groups_are_those_of_the_sections_that_are_there(recipe: Callable[..., dict[str, Any]]) -> None:
    names = {"actor": "ActorGroup", "rollout": "RolloutGroup", "env": "EnvGroup"}
    assert validate_cfg(recipe()).group_names == names
    assert validate_cfg(recipe(REWARD)).group_names == {**names, "reward": "RewardGroup"}
    assert validate_cfg(load_recipe(RECIPE, WITH_INFERENCE)).group_names == {
        "actor": "ActorGroup",
        "rollout": "RolloutGroup",
        "reward": "RewardGroup",
        "inference": "InferenceGroup",
    }


def test_learners_follow_from_the_loss_but_for_language_models(recipe: Callable[..., dict[str, Any]]) -> None:
    assert validate_cfg(recipe()).learner == validate_cfg(recipe()).algorithm.loss.learner
    assert validate_cfg(load_recipe(RECIPE)).learner == "text"
    assert validate_cfg(load_recipe("tiny_math_sft")).learner == "sft"


def test_sizes_of_a_reasoning_step() -> None:
    overrides = [
        "data.rollout_batch_size=8",
        "data.gen_batch_size=16",
        "data.max_prompt_length=10",
        "algorithm.sampling_params.max_new_tokens=5",
        "algorithm.group_size=4",
        "algorithm.max_num_gen_batches=3",
        "actor.global_batch_size=32",
        "runner.max_tokens_per_mbs=64",
    ]
    cfg = validate_cfg(load_recipe(RECIPE, overrides))
    assert cfg.max_sequence_tokens == cfg.max_context_tokens == 15
    assert cfg.max_prompts_per_step == 3 * 16
    assert cfg.answers_per_step == 8 * 4


def test_sizes_of_a_fine_tuning_step() -> None:
    cfg = validate_cfg(load_recipe("tiny_math_sft", ["data.max_length=20", "algorithm.update_epoch=3"]))
    assert cfg.max_sequence_tokens == 20
    assert cfg.max_context_tokens == 20 + cfg.algorithm.sampling_params.max_new_tokens
    assert cfg.samples_per_step == 3 * cfg.actor.global_batch_size
