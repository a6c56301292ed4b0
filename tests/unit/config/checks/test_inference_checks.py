"""A group of its own that recomputes log-probabilities: where it can, and what it needs."""

from __future__ import annotations

import pytest
from reasoning_problems import VALUES, WITH_INFERENCE, problems

MEGATRON = ("actor.training_backend=megatron", "~actor.fsdp_config", "cluster.cpu_slots_per_node=4")
TP2 = "actor.megatron.tensor_model_parallel_size=2"
EP2 = "actor.megatron.expert_model_parallel_size=2"


def group_of(ranks: str, *, shared: bool) -> tuple[str, str]:
    """Return the keys of an inference group next to an actor of four ranks."""
    placement = f"{{actor: 0-3, rollout: 0, reward: 0, inference: {ranks}}}"
    return f"+inference={{shard_model: {str(shared).lower()}}}", f"cluster.component_placement={placement}"


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
        (
            [*MEGATRON, TP2, *group_of("0-1", shared=False)],
            "inference.shard_model",
            "over 2 ranks, which compute together. Set inference.shard_model=true",
        ),
        ([*MEGATRON, EP2, *group_of("0-1", shared=False)], "inference.shard_model", "inference.shard_model=true"),
        (
            [*MEGATRON, TP2, *group_of("0-2", shared=True)],
            "cluster.component_placement.inference",
            "received 3 rank(s); the group shares the model as the actor does, and actor.megatron spreads it over 2. "
            "Place a multiple of 2 ranks",
        ),
        (
            [*MEGATRON, TP2, EP2, *group_of("0-1", shared=True)],
            "cluster.component_placement.inference",
            "Place a multiple of 4 ranks",
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


@pytest.mark.parametrize(
    "overrides",
    [
        [TP2, *group_of("0-1", shared=True)],
        [TP2, *group_of("0-3", shared=True)],
        ["actor.megatron.pipeline_model_parallel_size=2", *group_of("0-1", shared=True)],
        [EP2, *group_of("0-1", shared=True)],
        group_of("0-2", shared=True),
        group_of("0-2", shared=False),
    ],
    ids=lambda value: " ".join(value),
)
def test_ranks_that_fit_the_actors_layout_are_accepted(overrides: list[str]) -> None:
    assert problems(*MEGATRON, *overrides) == []
