"""Models whose layers Megatron-Core's are not equal to are refused; windows follow the layers' kinds."""

from __future__ import annotations

from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")
pytest.importorskip("megatron.core")

from rlinf.config.schema.megatron import MegatronConfig  # noqa: E402
from rlinf.errors import ConfigError  # noqa: E402
from rlinf.hybrid_engines.train.megatron.layer_config import (  # noqa: E402
    require_supported,
    transformer_config,
    windows,
)
from rlinf.models.fused import head_dim  # noqa: E402
from rlinf.placement.parallel import ParallelLayout  # noqa: E402

LAYERS = {"num_hidden_layers": 3}


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (transformers.GPT2Config(), "those of gpt2"),
        (transformers.LlamaConfig(hidden_act="gelu"), "gelu"),
        (transformers.LlamaConfig(mlp_bias=True), "biases"),
        (transformers.LlamaConfig(attention_bias=True), "biases"),
        (transformers.Qwen2Config(attention_dropout=0.1), "dropout"),
        (transformers.Qwen3MoeConfig(mlp_only_layers=[0], norm_topk_prob=True), "some of its layers are dense"),
        (transformers.Qwen3MoeConfig(norm_topk_prob=False), "norm_topk_prob"),
        (
            transformers.LlamaConfig(
                rope_parameters={"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4},
                max_position_embeddings=64,
            ),
            "yarn",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_models_are_refused_with_the_remedy(config: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match="training_backend=fsdp") as error:
        require_supported(config, "somewhere")
    assert problem in str(error.value)
    assert "somewhere" in str(error.value)


@pytest.mark.parametrize("name", ["Llama", "Mistral", "Qwen2", "Qwen3"])
def test_families_are_accepted(name: str) -> None:
    require_supported(getattr(transformers, f"{name}Config")(), None)


def test_windows_are_those_of_the_layers() -> None:
    assert windows(transformers.MistralConfig(sliding_window=7, **LAYERS)) == [7, 7, 7]
    assert windows(transformers.MistralConfig(sliding_window=None, **LAYERS)) == [None] * 3
    assert windows(transformers.LlamaConfig(**LAYERS)) == [None] * 3
    mixed = transformers.Qwen2Config(use_sliding_window=True, sliding_window=5, max_window_layers=1, **LAYERS)
    assert windows(mixed) == [None, 5, 5]


def test_heads_may_be_wider_than_the_model_divided_by_them() -> None:
    assert head_dim(transformers.LlamaConfig(hidden_size=64, num_attention_heads=4)) == 16
    assert head_dim(transformers.Qwen3Config(hidden_size=64, num_attention_heads=4, head_dim=32)) == 32


@pytest.mark.parametrize(("virtual", "has_gpu", "expected"), [(1, False, True), (2, False, False), (2, True, True)])
def test_outputs_that_gloo_still_sends_are_kept(
    monkeypatch: pytest.MonkeyPatch, virtual: int, has_gpu: bool, expected: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    layout = ParallelLayout(data=1, pipeline=2, virtual_pipeline=virtual)
    hf = transformers.LlamaConfig(num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2)
    found = transformer_config(hf, MegatronConfig(), layout, dtype=torch.float32, finalize=lambda *_, **__: None)
    assert found.deallocate_pipeline_outputs is expected
    assert found.overlap_p2p_comm is (virtual > 1)
