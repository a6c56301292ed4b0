"""Advantage, loss, model and environments that do not fit each other are located, with a remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from changed_recipes import GRPO, assert_mended

from rlinf.config import load_recipe, validate_cfg
from rlinf.errors import ConfigError

# (changes to the base recipe, path at the start of the line, remedy within the line)
MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    ({"actor.model.add_value_head": False}, "actor.model.add_value_head", "Set actor.model.add_value_head=true"),
    (
        {"algorithm.adv_type": "raw", "algorithm.loss_type": "actor"},
        "actor.model.add_value_head",
        "loss_type=actor does not train a value head",
    ),
    (GRPO | {"actor.optim": {"critic_warmup_steps": 5}}, "actor.model.add_value_head", "critic_warmup_steps > 0"),
    ({"algorithm.reward_type": "token_level"}, "algorithm.reward_type", "algorithm.reward_type=action_level"),
    ({"algorithm.reward_type": "action_level"}, "algorithm.logprob_type", "coarser than algorithm.reward_type"),
    (
        {"algorithm.loss_type": "decoupled_actor_critic", "algorithm.behave_weight_threshold": 0.5},
        "algorithm.behave_weight_threshold",
        "Set it to 2.0",
    ),
    (GRPO | {"algorithm.group_size": 1}, "algorithm.group_size", "an integer > 1"),
    (GRPO | {"env.train.group_size": 2}, "env.train.group_size", "env.train.group_size=${algorithm.group_size}"),
    (GRPO | {"env.train.auto_reset": True}, "env.train.auto_reset", "Set env.train.auto_reset=false"),
    (
        GRPO
        | {
            "algorithm.filter_rewards": True,
            "algorithm.rewards_lower_bound": 2.0,
            "algorithm.rewards_upper_bound": 1.0,
        },
        "algorithm.rewards_lower_bound",
        "below algorithm.rewards_upper_bound",
    ),
    ({"algorithm.clip_ratio_c": 1.0}, "algorithm.clip_ratio_c", "Set it to 3.0"),
    (
        {"algorithm.loss_type": "decoupled_actor_critic", "algorithm.recompute_logprobs": True},
        "algorithm.recompute_logprobs",
        "recomputes them for its proximal policy. Set algorithm.recompute_logprobs=false",
    ),
    (
        {"algorithm.staleness_threshold": 1, "algorithm.recompute_logprobs": True},
        "algorithm.recompute_logprobs",
        "older weights that acted. Set algorithm.recompute_logprobs=false",
    ),
    ({"algorithm.clip_ratio_low": 1.0}, "algorithm.clip_ratio_low", "(0, 1)"),
]


@pytest.mark.parametrize(("changes", "path", "remedy"), MISTAKES, ids=lambda value: str(value)[:60])
def test_a_mistake_is_located_with_its_remedy(
    recipe: Callable[..., dict[str, Any]], changes: dict[str, Any], path: str, remedy: str
) -> None:
    assert_mended(recipe(changes), path, remedy)


OPD = "gym_cartpole_opd_mlp"
OFT = "{model_type: openvla_oft, model_path: /oft, unnorm_key: libero, action_dim: 7}"


@pytest.mark.parametrize(
    ("overrides", "path", "remedy"),
    [
        (["~algorithm.teacher"], "algorithm.teacher", "learns from a teacher. Set algorithm.teacher.ckpt_path"),
        (["~algorithm.teacher.ckpt_path"], "algorithm.teacher.ckpt_path", "checkpoints/global_step_<N>"),
        (["+algorithm.teacher.model_path=/t"], "algorithm.teacher.model_path", "Set algorithm.teacher.ckpt_path"),
        (
            ["+algorithm.teacher.model_path=/t", "~algorithm.teacher.model", f"+algorithm.teacher.model={OFT}"],
            "algorithm.teacher.model_path",
            "Remove one of them",
        ),
        (["algorithm.adv_type=raw"], "algorithm.teacher", "compares with no other policy"),
        (["algorithm.loss_type=embodied_nft", "~algorithm.logprob_type"], "algorithm.loss_type", "Set it to opd"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_distillation_has_a_teacher_with_weights(overrides: list[str], path: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_cfg(load_recipe(OPD, overrides))
    assert any(f"{path}: " in line and remedy in line for line in str(caught.value).splitlines()), caught.value


@pytest.mark.parametrize(
    "overrides",
    [
        ["~algorithm.teacher.model"],
        ["algorithm.adv_type=raw", "algorithm.loss_type=actor", "+algorithm.kl_beta=0.1"],
        ["~algorithm.teacher.ckpt_path", "~algorithm.teacher.model", f"+algorithm.teacher.model={OFT}"],
    ],
)
def test_a_teacher_with_weights_is_compared_with(overrides: list[str]) -> None:
    assert validate_cfg(load_recipe(OPD, overrides)).algorithm.needs_reference
