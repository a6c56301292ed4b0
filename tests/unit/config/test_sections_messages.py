"""Keys of other kinds and of other sections are located by path, with what was meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from changed_recipes import REWARD, SAC, assert_mended

# (changes to the base recipe, path at the start of the line, remedy within the line)
MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    ({"runner.tsak_type": "reasoning"}, "runner.tsak_type", "Did you mean 'runner.task_type'?"),
    ({"env.train": {"env_tipe": "metaworld"}}, "env.train.env_tipe", "Did you mean 'env.train.env_type'?"),
    (
        {"algorithm.replay_buffer": {"min_buffer_size": 3}},
        "algorithm.replay_buffer",
        "loss_type=embodied_sac",
    ),
    (SAC | {"algorithm.clip_ratio_low": 0.1}, "algorithm.clip_ratio_low", "not used by loss_type=embodied_sac"),
    (SAC | {"algorithm.gae_lambda": 0.9}, "algorithm.gae_lambda", "not used by adv_type=embodied_sac"),
    (REWARD | {"reward.rewards.env.reward_type": "modle"}, "reward.rewards.env.reward_type", "Did you mean 'model'?"),
    (REWARD | {"reward.rewards.env.reward_type": "vqa"}, "reward.rewards.env.reward_type", "another kind of recipe"),
    ({"env.train.env_type": "gymnasum"}, "env.train.env_type", "Did you mean 'gymnasium'?"),
    ({"env.train.env_type": "DELETE"}, "env.train.env_type", "gymnasium"),
    ({"actor.model.model_type": "transformer"}, "actor.model.model_type", "mlp_policy"),
    ({"actor.model.model_type": 3}, "actor.model.model_type", "allowed: a string"),
    ({"algorithm.adv_type": "GEA"}, "algorithm.adv_type", "Did you mean 'gae'?"),
    ({"algorithm.loss_type": "actor_critc"}, "algorithm.loss_type", "Did you mean 'actor_critic'?"),
    (
        {"algorithm.adv_type": "grpo", "algorithm.gae_lambda": 0.9},
        "algorithm.gae_lambda",
        "not used by adv_type=grpo (it belongs to adv_type=gae)",
    ),
    (
        {"algorithm.loss_type": "actor", "algorithm.value_clip": 0.2},
        "algorithm.value_clip",
        "not used by loss_type=actor (it belongs to loss_type=actor_critic or",
    ),
    ({"algorithm.kl_betta": 0.1}, "algorithm.kl_betta", "Did you mean 'algorithm.kl_beta'?"),
    ({"algorithm.advantage": {"gamma": 1.0}}, "algorithm.advantage", "directly under algorithm"),
    ({"algorithm.total_num_envs": 8}, "algorithm.total_num_envs", "Did you mean 'env.train.total_num_envs'?"),
]


@pytest.mark.parametrize(("changes", "path", "remedy"), MISTAKES, ids=lambda value: str(value)[:60])
def test_a_mistake_is_located_with_its_remedy(
    recipe: Callable[..., dict[str, Any]], changes: dict[str, Any], path: str, remedy: str
) -> None:
    assert_mended(recipe(changes), path, remedy)
