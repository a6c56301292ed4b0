"""Algorithms of language models whose keys contradict each other."""

from __future__ import annotations

import pytest
from reasoning_problems import problems

from rlinf.config import load_recipe, validate_cfg

PLACEMENT = "cluster.component_placement={actor: 0, rollout: 0, reward: 0, inference: 0}"


@pytest.mark.parametrize(
    ("overrides", "path", "remedy"),
    [
        (
            ["algorithm.recompute_logprobs=false", "algorithm.importance_correction={level: token}"],
            "algorithm.recompute_logprobs",
            "algorithm.recompute_logprobs=true",
        ),
        (["algorithm.importance_correction={lower_bound: 1.5}"], "algorithm.importance_correction", "lower_bound=0.5"),
        (
            ["weight_syncer.bucket.bucket_dtype=bf16", "actor.model.is_lora=true"],
            "weight_syncer.bucket.bucket_dtype",
            "with actor.model.is_lora a receiver needs the weights in fp32",
        ),
        (
            ["weight_syncer.type=patch", "weight_syncer.bucket.bucket_device=cuda"],
            "weight_syncer.bucket.bucket_device",
            "Set bucket_device=cpu",
        ),
        (
            ["actor.routing_replay=recompute", "algorithm.recompute_logprobs=false"],
            "actor.routing_replay",
            "algorithm.recompute_logprobs=true",
        ),
        (["actor.moe_aux_loss_coeff=0.1", "+inference={}", PLACEMENT], "actor.moe_aux_loss_coeff", "Remove inference"),
        (["actor.fsdp_config.context_parallel_size=2"], "actor.fsdp_config.context_parallel_size", "must divide the 1"),
        (
            ["actor.fsdp_config.context_parallel_size=2", "+inference={}", PLACEMENT],
            "actor.fsdp_config.context_parallel_size",
            "Remove the section inference",
        ),
        (
            ["weight_syncer.bucket.bucket_dtype=fp16", "+inference={}", PLACEMENT],
            "weight_syncer.bucket.bucket_dtype",
            "with inference a receiver needs the weights in fp32",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_mistake_names_its_key_and_its_remedy(overrides: list[str], path: str, remedy: str) -> None:
    found = problems(*overrides)
    assert any(line.startswith(f"{path}: ") and remedy in line for line in found), found


@pytest.mark.parametrize(
    ("overrides", "precision"),
    [
        ([], "fp32"),
        (["rollout.model.precision=bf16"], "bf16"),
        (["actor.model.precision=bf16"], "bf16"),
        (["actor.model.precision=bf16", "weight_syncer.bucket.bucket_dtype=fp32"], "fp32"),
        (["weight_syncer.bucket.bucket_dtype=fp16"], "fp16"),
        (["actor.model.precision=bf16", "actor.model.is_lora=true"], None),
        (["actor.model.precision=bf16", "+inference={}", PLACEMENT], None),
    ],
    ids=str,
)
def test_weights_are_published_in_the_precision_of_the_engines(overrides: list[str], precision: str | None) -> None:
    cfg = validate_cfg(load_recipe("tiny_math_grpo", overrides))
    assert cfg.published_precision == precision


def test_policies_get_master_weights_unless_the_recipe_says_otherwise() -> None:
    for overrides, precision in (([], None), (["weight_syncer.bucket.bucket_dtype=bf16"], "bf16")):
        assert validate_cfg(load_recipe("gym_cartpole_ppo_mlp", overrides)).published_precision == precision
