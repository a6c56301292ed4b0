"""What off-policy losses need, and what means nothing to them, is located with a remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from changed_recipes import CROSSQ, SAC, TD3, assert_mended

# (changes to the base recipe, path at the start of the line, remedy within the line)
MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    ({"actor.critic_optim": {"lr": 1e-3}}, "actor.critic_optim", "write actor.optim.value_lr"),
    ({"actor.model.add_q_head": True}, "actor.model.add_q_head", "Set actor.model.add_q_head=false"),
    ({"algorithm.adv_type": "embodied_sac"}, "algorithm.adv_type", "loss_type=actor_critic needs advantages"),
    (SAC | {"algorithm.adv_type": "gae"}, "algorithm.adv_type", "Set algorithm.adv_type=embodied_sac"),
    (SAC | {"actor.model.add_q_head": False}, "actor.model.add_q_head", "Set actor.model.add_q_head=true"),
    (SAC | {"actor.model.deterministic": True}, "actor.model.deterministic", "Set actor.model.deterministic=false"),
    (SAC | {"actor.model.q_head_type": "crossq"}, "actor.model.q_head_type", "trains default or layer_norm"),
    (SAC | {"algorithm.num_min_q": 3}, "algorithm.num_min_q", "actor.model.num_q_heads 2"),
    (SAC | {"algorithm.demo_buffer": {}}, "algorithm.demo_buffer.load_path", "missing"),
    (TD3 | {"actor.model.deterministic": False}, "actor.model.deterministic", "Set actor.model.deterministic=true"),
    (CROSSQ | {"actor.model.q_head_type": "default"}, "actor.model.q_head_type", "Set actor.model.q_head_type=crossq"),
    (CROSSQ | {"actor.micro_batch_size": 50}, "actor.micro_batch_size", "normalises over the batch"),
    (
        CROSSQ | {"actor.fsdp_config": {"gradient_checkpointing": True}},
        "actor.fsdp_config.gradient_checkpointing",
        "Set it to false",
    ),
    (SAC | {"actor.model.discrete": True}, "actor.model.discrete", "Set actor.model.discrete=false"),
    (SAC | {"actor.model.initial_log_std": 2.0}, "actor.model.initial_log_std", "Set it to 0.0"),
    (
        SAC | {"algorithm.replay_buffer": {"capacity": 10, "min_buffer_size": 11}},
        "algorithm.replay_buffer.min_buffer_size",
        "algorithm.replay_buffer.capacity 10. Lower it",
    ),
    (
        SAC | {"algorithm.entropy_tuning": {"initial_alpha": 0.0}},
        "algorithm.entropy_tuning.initial_alpha",
        "alpha_type=fixed_alpha",
    ),
]


@pytest.mark.parametrize(("changes", "path", "remedy"), MISTAKES, ids=lambda value: str(value)[:60])
def test_a_mistake_is_located_with_its_remedy(
    recipe: Callable[..., dict[str, Any]], changes: dict[str, Any], path: str, remedy: str
) -> None:
    assert_mended(recipe(changes), path, remedy)
