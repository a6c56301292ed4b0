"""The plan's parameters are those that transformers builds and that sharding spreads over ranks."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rlinf.config.decoder_sizes import DecoderSizes, adapter_shapes, shard_elements
from rlinf.config.schema.train import FSDPConfig
from rlinf.errors import ConfigError
from rlinf.models.language.causal_lm import CausalLM
from rlinf.models.language.pretrained import build_on_meta
from tests.unit.hybrid_engines.train.rank_processes import run_ranks
from tests.unit.models.tiny_language_models import tiny_config

pytest.importorskip("transformers")
pytestmark = pytest.mark.timeout(300)
SMALL: dict[str, Any] = {
    "vocab_size": 101,
    "hidden_size": 48,
    "intermediate_size": 56,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
LARGE: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128256,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": True, "mlp_bias": True},
    "mistral": {"head_dim": 16},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 8},
    "qwen3_moe": {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 20, "head_dim": 8},
}


def build(folder: Path, content: dict[str, Any], **keys: Any) -> CausalLM:
    """Return the model of a configuration, without memory."""
    (folder / "config.json").write_text(json.dumps(content))
    cfg = tiny_config(folder, attn_implementation="sdpa", **keys)
    model = build_on_meta(cfg, "sdpa")
    with torch.device("meta"):
        return CausalLM(cfg, model)


@pytest.mark.parametrize("family", CONFIGS)
def test_parameters_are_those_that_transformers_builds(tmp_path: Path, family: str) -> None:
    model = build(tmp_path, SMALL | CONFIGS[family] | {"model_type": family})
    expected = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert DecoderSizes.of_folder(tmp_path).parameters() == expected


def test_adapters_are_those_that_are_added(tmp_path: Path) -> None:
    model = build(tmp_path, SMALL | {"model_type": "qwen2"}, is_lora=True, lora_rank=3)
    added = sum(parameter.numel() for name, parameter in model.named_parameters() if model.is_adapter(name))
    parameters = DecoderSizes.of_folder(tmp_path).parameters()
    found = adapter_shapes(parameters, tuple(model.cfg.lora_target_modules), 3)
    assert sum(math.prod(shape) for shape in found.values()) == added > 0


def count_shard(rank: int, folder: Path, num_ranks: int) -> tuple[int, int, int]:
    """Return parameters of the first rank, of the whole model, and bytes allocated for them (none)."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from rlinf.hybrid_engines.train.fsdp import SHARDING

    dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=num_ranks)
    model = build(folder, LARGE)
    whole = sum(parameter.numel() for parameter in model.parameters())
    SHARDING["fsdp2"](model, FSDPConfig(), torch.bfloat16, torch.device("cpu"))
    local = [parameter.to_local() for parameter in model.parameters()]
    assert all(tensor.is_meta for tensor in local)
    return sum(tensor.numel() for tensor in local), whole, sum(p.to_local().nbytes for p in model.parameters())


def test_70b_parameters_fit_their_plan_on_64_ranks(tmp_path: Path) -> None:
    ((shard, whole, held),) = run_ranks(1, count_shard, tmp_path, 64)
    parameters = DecoderSizes.of_config(LARGE).parameters()
    assert shard_elements(parameters, 1) == whole == 70_553_706_496
    assert shard_elements(parameters, 64) == shard
    assert held == 4 * shard < 4 * 1.01 * whole / 64


@pytest.mark.parametrize(("rows", "ranks", "expected"), [(10, 1, 10), (10, 3, 4), (2, 4, 1)])
def test_the_first_rank_holds_most_rows(rows: int, ranks: int, expected: int) -> None:
    assert shard_elements({"a": (rows, 5), "b": (rows,)}, ranks) == expected * 6


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"model_type": "gpt2"}, "Sizes of 'gpt2' are not known"),
        (SMALL | CONFIGS["qwen3_moe"] | {"model_type": "qwen3_moe", "mlp_only_layers": [0]}, "some layers only"),
    ],
)
def test_other_models_are_refused(content: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DecoderSizes.of_config(content)


@pytest.mark.parametrize("text", ["{", '{"model_type": "qwen2"}'])
def test_a_folder_without_usable_sizes_says_so(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match="no usable config"):
        DecoderSizes.of_folder(tmp_path)
