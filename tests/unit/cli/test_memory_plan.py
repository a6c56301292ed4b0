"""The memory that a plan prints follows the recipe's keys, and is silent where sizes are not at hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlinf.cli.memory_plan import gib, memory_rows, rank_bytes
from rlinf.config import load_recipe, validate_cfg
from rlinf.config.checks.run_sizes import WorldSizes
from rlinf.config.decoder_sizes import DecoderSizes
from rlinf.config.schema.root import ReasoningConfig

CONFIG: dict[str, Any] = {
    "model_type": "qwen2",
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}
SIZES = DecoderSizes.of_config(CONFIG)
# Embedding and last norm; of a layer queries, keys and values with biases, output, feed-forward part, norms.
LAYER = (64 + 16 + 16) * 65 + 64 * 64 + 3 * 64 * 96 + 2 * 64
WHOLE = 1000 * 64 + 64 + 4 * LAYER


def recipe(*overrides: str) -> ReasoningConfig:
    """Return a recipe of a language model."""
    cfg = validate_cfg(load_recipe("tiny_math_grpo", overrides))
    assert isinstance(cfg, ReasoningConfig)
    return cfg


def test_replicas_hold_everything_and_shards_their_part() -> None:
    whole = rank_bytes(recipe("actor.fsdp_config.sharding_strategy=no_shard"), SIZES, 2)
    assert (whole.weights, whole.gradients, whole.moments) == (4 * WHOLE, 4 * WHOLE, 8 * WHOLE)
    keys = ("actor.fsdp_config.sharding_strategy=full_shard", "actor.fsdp_config.enable_gradient_accumulation=false")
    shard = rank_bytes(recipe(*keys), SIZES, 2)
    assert (shard.weights, shard.gradients, shard.moments) == (2 * WHOLE, 2 * WHOLE, 4 * WHOLE)
    cfg = recipe(*keys)
    hybrid = replace(cfg.actor.fsdp_config, sharding_strategy="hybrid_shard", hybrid_shard_size=2)
    assert rank_bytes(replace(cfg, actor=replace(cfg.actor, fsdp_config=hybrid)), SIZES, 4) == shard
    assert shard.total == shard.weights + shard.gradients + shard.moments + shard.activations


def test_stages_and_tensor_ranks_hold_their_part() -> None:
    keys = ("actor.training_backend=megatron", "~actor.fsdp_config", "actor.model.precision=bf16")
    sizes = ("actor.megatron.tensor_model_parallel_size=2", "actor.megatron.pipeline_model_parallel_size=2")
    placed = ("cluster.cpu_slots_per_node=8", "cluster.component_placement={actor: 0-7, rollout: 0, reward: 0}")
    found = rank_bytes(recipe(*keys, *sizes, *placed), SIZES, 8)
    own = 1000 * 32 + 2 * ((LAYER - 2 * 64) // 2 + 2 * 64)
    assert (found.weights, found.gradients, found.moments) == (2 * own + 2 * own, 4 * own, 4 * own)
    again = rank_bytes(recipe(*keys, *sizes, *placed, "actor.megatron.recompute=full"), SIZES, 8)
    assert again.activations < found.activations
    assert again.weights == found.weights


@pytest.mark.parametrize(
    ("keys", "weights", "gradients"),
    [
        (("sharding_strategy=full_shard",), 2 * WHOLE, 4 * WHOLE),
        (("sharding_strategy=shard_grad_op",), 2 * WHOLE + 4 * WHOLE, 4 * WHOLE),
        (("sharding_strategy=full_shard", "reshard_after_forward=false"), 6 * WHOLE, 4 * WHOLE),
        (("sharding_strategy=full_shard", "reshard_after_forward=false", "mixed_precision.param_dtype=bf16"),
         4 * WHOLE, 4 * WHOLE),
    ],
)  # fmt: skip
def test_what_is_kept_gathered_counts(keys: tuple[str, ...], weights: int, gradients: int) -> None:
    found = rank_bytes(recipe(*(f"actor.fsdp_config.{key}" for key in keys)), SIZES, 2)
    assert (found.weights, found.gradients) == (weights, gradients)


def test_adapters_alone_have_gradients_and_moments() -> None:
    keys = ("actor.model.is_lora=true", "actor.model.lora_rank=2", "actor.fsdp_config.sharding_strategy=no_shard")
    found = rank_bytes(recipe(*keys), SIZES, 1)
    adapters = 4 * 2 * ((64 + 64) * 2 + 2 * (64 + 16) + 3 * (64 + 96))
    assert (found.weights, found.gradients, found.moments) == (4 * (WHOLE + adapters), 4 * adapters, 8 * adapters)


def test_activations_follow_tokens_and_checkpointing() -> None:
    budget = ("runner.enable_dynamic_batch_size=true", "runner.max_tokens_per_mbs=1024")
    kept = rank_bytes(recipe(*budget), SIZES, 1).activations
    again = rank_bytes(recipe(*budget, "actor.fsdp_config.gradient_checkpointing=true"), SIZES, 1).activations
    layer, logits = 4 * 64 + 2 * (8 + 2) * 8 + 4 * 96, 12 * 1024 * 1000
    assert kept == 1024 * 4 * 4 * layer + logits
    assert again == 1024 * 4 * (4 * 64 + layer) + logits


def test_rows_name_actor_and_engine(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    cfg = recipe(f"actor.model.model_path={tmp_path}", "rollout.max_running_requests=8")
    (actor, engine) = memory_rows(cfg, WorldSizes(actor=2, rollout=1))
    assert actor[0] == "actor memory"
    assert "on each of 2 rank(s)" in actor[1]
    assert gib(rank_bytes(cfg, SIZES, 2).total) in actor[1]
    assert engine[0] == "engine memory"
    assert f"{4 * 2 * 4 * 2 * 8 / 1024:.1f} KiB a token" in engine[1]
    assert memory_rows(recipe(f"actor.model.model_path={tmp_path / 'absent'}"), WorldSizes(actor=2)) == []


def test_sizes_read_well() -> None:
    assert gib(3 << 30) == "3.00 GiB"
    assert gib(2048) == "2 KiB"


def test_ranks_that_share_tokens_share_activations() -> None:
    placed = ("cluster.cpu_slots_per_node=2", "cluster.component_placement={actor: 0-1, rollout: 0, reward: 0}")
    alone, shared = (
        rank_bytes(recipe(*placed, f"actor.fsdp_config.context_parallel_size={size}"), SIZES, 2) for size in (1, 2)
    )
    assert shared.activations == alone.activations // 2
    assert shared.weights == alone.weights


def test_a_critic_of_its_own_is_listed_with_its_own_sharding(tmp_path: Path) -> None:
    for name, layers in (("policy", 4), ("critic", 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": layers}))
    keys = ("algorithm.adv_type=gae", "critic.use_critic_model=true", f"actor.model.model_path={tmp_path}/policy")
    named = f"critic.model={{model_type: causal_lm, model_path: {tmp_path}/critic}}"
    rows = {
        key: dict(memory_rows(recipe(*keys, *more), WorldSizes(actor=1)))
        for key, more in {"": (), "named": (named,)}.items()
    }
    assert rows[""]["critic memory"] == rows[""]["actor memory"]
    assert f"weights {gib(4 * (WHOLE - 2 * LAYER))}" in rows["named"]["critic memory"]
    assert "critic memory" not in dict(memory_rows(recipe(keys[2]), WorldSizes(actor=1)))
