"""What a recipe must say to be trained by Megatron-Core."""

from __future__ import annotations

import pytest
from reasoning_problems import problems

MEGATRON = ("actor.training_backend=megatron", "actor.fsdp_config.sharding_strategy=full_shard")
TWO = ("cluster.cpu_slots_per_node=2", "cluster.component_placement={actor: 0-1, rollout: 0, reward: 0}")
TP2 = "actor.megatron.tensor_model_parallel_size=2"


@pytest.mark.parametrize(
    ("overrides", "path", "remedy"),
    [
        ([TP2], "actor.megatron.tensor_model_parallel_size", "not used by actor.training_backend=fsdp"),
        ([MEGATRON[0]], "actor.fsdp_config.sharding_strategy", "not used by actor.training_backend=megatron"),
        ([*MEGATRON, TP2], "actor.megatron", "2 ranks, but there are 1"),
        (
            [*MEGATRON, *TWO, "actor.megatron.virtual_pipeline_model_parallel_size=2"],
            "actor.megatron",
            "needs several pipeline stages",
        ),
        ([*MEGATRON, "actor.model.is_lora=true"], "actor.model.is_lora", "Set actor.training_backend=fsdp"),
        ([*MEGATRON, "runner.ckpt_path=weights.pt"], "runner.ckpt_path", "actor.model.model_path"),
        ([*MEGATRON, "+actor.megatron.layers=te"], "actor.megatron.layers", "TransformerEngine are not used"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_a_mistake_names_its_key_and_its_remedy(overrides: list[str], path: str, remedy: str) -> None:
    found = problems(*overrides)
    assert any(line.startswith(path) and remedy in line for line in found), found


def test_two_ranks_can_share_a_model() -> None:
    assert problems(*MEGATRON, *TWO, TP2) == []
    assert problems(*MEGATRON, *TWO, "actor.megatron.pipeline_model_parallel_size=2") == []
