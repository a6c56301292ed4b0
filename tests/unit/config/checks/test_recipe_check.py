"""Keys that have no effect in a recipe are refused, with what they belong to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from changed_recipes import CNN, CROSSQ, GRPO, SAC, TD3, assert_mended

# (changes to the base recipe, path at the start of the line, remedy within the line)
MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    (GRPO | {"actor.optim": {"value_lr": 1e-3}}, "actor.optim.value_lr", "without actor.model.add_value_head"),
    ({"algorithm.group_size": 2}, "algorithm.group_size", "not used by adv_type=gae"),
    ({"actor.model.num_q_heads": 3}, "actor.model.num_q_heads", "without actor.model.add_q_head"),
    (SAC | {"actor.model.add_value_head": True}, "actor.model.add_value_head", "not used by loss_type=embodied_sac"),
    (SAC | {"algorithm.logprob_type": "action_level"}, "algorithm.logprob_type", "not used by loss_type=embodied_sac"),
    (SAC | {"algorithm.reward_type": "action_level"}, "algorithm.reward_type", "not used by loss_type=embodied_sac"),
    (SAC | {"algorithm.bootstrap_type": "always"}, "algorithm.bootstrap_type", "not used by adv_type=embodied_sac"),
    (SAC | {"algorithm.group_size": 2}, "algorithm.group_size", "not used by adv_type=embodied_sac"),
    (SAC | {"actor.model.exploration_noise": 0.2}, "actor.model.exploration_noise", "without actor.model.determ"),
    (TD3 | {"actor.model.initial_log_std": 1.0}, "actor.model.initial_log_std", "not used with"),
    (CROSSQ | {"algorithm.tau": 0.1}, "algorithm.tau", "it has no targets"),
    (SAC | {"actor.optim": {"value_lr": 1e-3}}, "actor.optim.value_lr", "without actor.model.add_value_head"),
    (
        SAC | {"algorithm.entropy_tuning": {"alpha_type": "fixed_alpha", "target_entropy": -2.0}},
        "algorithm.entropy_tuning.target_entropy",
        "by alpha_type=fixed_alpha",
    ),
    (
        GRPO | {"algorithm.rewards_upper_bound": 0.9},
        "algorithm.rewards_upper_bound",
        "without algorithm.filter_rewards",
    ),
    (GRPO | {"algorithm.bootstrap_type": "always"}, "algorithm.bootstrap_type", "not used by adv_type=grpo"),
    ({"algorithm.kl_penalty": "k1"}, "algorithm.kl_penalty", "while algorithm.kl_beta is 0"),
    ({"algorithm.entropy_type": "token_level"}, "algorithm.entropy_type", "while algorithm.entropy_bonus is 0"),
    ({"actor.optim": {"total_training_steps": 9}}, "actor.optim.total_training_steps", "lr_scheduler=constant"),
    ({"actor.model.obs_clip": 5.0}, "actor.model.obs_clip", "without actor.model.normalize_obs"),
    (CNN | {"actor.model.random_shift": 4}, "actor.model.random_shift", "without actor.model.add_q_head"),
    (CNN | {"actor.model.normalize_obs": True}, "actor.model.normalize_obs", "while actor.model.obs_dim is 0"),
    (
        {"actor.model.discrete": True, "actor.model.action_scale": 2.0},
        "actor.model.action_scale",
        "with actor.model.discrete",
    ),
]


@pytest.mark.parametrize(("changes", "path", "remedy"), MISTAKES, ids=lambda value: str(value)[:60])
def test_a_mistake_is_located_with_its_remedy(
    recipe: Callable[..., dict[str, Any]], changes: dict[str, Any], path: str, remedy: str
) -> None:
    assert_mended(recipe(changes), path, remedy)
