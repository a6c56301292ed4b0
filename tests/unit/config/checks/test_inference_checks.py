"""A group of its own that recomputes log-probabilities: where it can, and what it needs."""

from __future__ import annotations

import pytest
from reasoning_problems import VALUES, WITH_INFERENCE, problems


@pytest.mark.parametrize(
    ("overrides", "path", "remedy"),
    [
        (["+inference={}"], "cluster.component_placement.inference", "Add 'inference: 0'"),
        ([WITH_INFERENCE[1]], "cluster.component_placement.inference", "without a section inference"),
        ([*WITH_INFERENCE, "algorithm.staleness_threshold=2"], "inference", "algorithm.staleness_threshold=null"),
        ([*WITH_INFERENCE, *VALUES], "inference", "Remove the section, or choose an algorithm.adv_type"),
        ([*WITH_INFERENCE, "algorithm.recompute_logprobs=false"], "inference", "set algorithm.recompute_logprobs=true"),
        ([*WITH_INFERENCE, "inference.max_tokens_per_mbs=23"], "inference.max_tokens_per_mbs", "Raise it to 24"),
        (
            [*WITH_INFERENCE, "inference.shard_model=true", "actor.fsdp_config.sharding_strategy=no_shard"],
            "inference.shard_model",
            "or sharding_strategy=full_shard",
        ),
        ([*WITH_INFERENCE, "inference.micro_batch_size=2"], "inference.micro_batch_size", "enable_dynamic_batch_size"),
        ([*WITH_INFERENCE, "inference.load_from_actor=true"], "inference.load_from_actor", "come from the actor"),
        ([*WITH_INFERENCE, "inference.group_name=ActorGroup"], "inference.group_name", "also actor.group_name"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_mistake_names_its_key_and_its_remedy(overrides: list[str], path: str, remedy: str) -> None:
    found = problems(*overrides)
    assert any(line.startswith(f"{path}: ") and remedy in line for line in found), found
