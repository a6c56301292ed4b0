"""Checkpoints of transformers are read by rows, into models that were built without memory, and fit or are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlinf.data.packing import pack_sequences
from rlinf.errors import ConfigError
from rlinf.models import get_model
from rlinf.models.language.causal_lm import CausalLM
from tests.unit.models.tiny_language_models import save_tiny, tiny_config

transformers = pytest.importorskip("transformers")
IDS = [[5, 6, 7, 8, 9, 10, 3, 2, 1], [1, 2, 30]]
SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
}
EXPERTS: dict[str, Any] = {"num_experts": 12, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "head_dim": 8}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8,
}
FAMILIES: dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, rope_parameters=LLAMA3)),
    "mistral": lambda: transformers.MistralForCausalLM(transformers.MistralConfig(**SIZES, head_dim=4)),
    "qwen2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**SIZES, tie_word_embeddings=True)),
    "qwen3": lambda: transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**SIZES, head_dim=8)),
    "qwen3_moe": lambda: transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**SIZES | EXPERTS)),
}


def save(folder: Path, family: str, **keys: Any) -> Any:
    """Write a random model and return it."""
    torch.manual_seed(0)
    model = FAMILIES[family]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    model.save_pretrained(folder, **keys)
    return model


def logprobs(model: Any) -> torch.Tensor:
    """Return the log-probabilities of the tokens of ``IDS`` after the first of each."""
    rows = []
    for sequence in IDS:
        ids = torch.tensor([sequence])
        found = model(ids).logits[0, :-1].log_softmax(-1)
        rows.append(found.gather(-1, ids[0, 1:].unsqueeze(-1)).squeeze(-1))
    return torch.cat(rows)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("keys", [{}, {"max_shard_size": "10KB"}], ids=["one file", "an index"])
def test_every_family_computes_what_transformers_does(tmp_path: Path, family: str, keys: dict[str, Any]) -> None:
    expected = save(tmp_path, family, **keys)
    assert (tmp_path / "model.safetensors.index.json").exists() == bool(keys)
    model = get_model(tiny_config(tmp_path))
    assert not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
    for name, tensor in expected.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name
    packed = pack_sequences(IDS)
    found = model(packed).logprobs[packed.position_ids > 0]
    torch.testing.assert_close(found, logprobs(expected), rtol=0, atol=2e-5)


def test_a_model_on_meta_has_no_memory_but_for_computed_buffers(tmp_path: Path) -> None:
    save(tmp_path, "qwen2")
    model = get_model(tiny_config(tmp_path, add_value_head=True), on_meta=True)
    assert isinstance(model, CausalLM)
    assert all(parameter.is_meta for parameter in model.parameters())
    assert not any(buffer.is_meta for buffer in model.buffers())
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_weights_in_half_precision_become_masters_in_float32(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    stored = {name: tensor.bfloat16() for name, tensor in load_file(tmp_path / "model.safetensors").items()}
    save_file(stored, tmp_path / "model.safetensors", metadata={"format": "pt"})
    for name, tensor in get_model(tiny_config(tmp_path)).state_dict().items():
        assert torch.equal(tensor, stored[name].float()), name


def test_checkpoints_of_torch_are_read_as_well(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    torch.save(stored, tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    state = get_model(tiny_config(tmp_path)).state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in stored.items())


def test_frequencies_in_old_checkpoints_are_computed_anew(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    stored["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(2)
    save_file(stored, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert get_model(tiny_config(tmp_path)).weight_source is not None


@pytest.mark.parametrize("rank", [2, 4])
def test_adapters_start_the_same_on_every_rank_and_change_nothing(tmp_path: Path, rank: int) -> None:
    save_tiny(tmp_path)
    models = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        models.append(get_model(tiny_config(tmp_path, is_lora=True, lora_rank=rank)))
        torch.randn(3)
    one, same, other = (model.state_dict() for model in models)
    adapters = [name for name in one if "lora_A" in name]
    assert adapters
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not any(torch.equal(one[name], other[name]) for name in adapters)
    assert not torch.equal(one[adapters[0]], one[adapters[1]])
    packed = pack_sequences(IDS)
    plain = get_model(tiny_config(tmp_path))(packed).logprobs
    assert torch.equal(models[0](packed).logprobs, plain)


def change_extra(folder: Path) -> None:
    stored = load_file(folder / "model.safetensors")
    save_file({**stored, "score.weight": torch.zeros(3)}, folder / "model.safetensors", metadata={"format": "pt"})


def change_shape(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 41}))


def change_bytes(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"no weights at all")


def remove_shard(folder: Path) -> None:
    save_tiny(folder).save_pretrained(folder, max_shard_size="2KB")
    (folder / "model.safetensors").unlink(missing_ok=True)
    next(folder.glob("model-*.safetensors")).unlink()


def remove_all(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (change_extra, r"weights that the model does not have: score\.weight"),
        (change_shape, r"embed_tokens\.weight in shape \(40, 16\); by its config\.json the model has \(41, 16\)"),
        (change_bytes, r"model\.safetensors' cannot be read"),
        (remove_shard, r"model-.*cannot be read"),
        (remove_all, r"holds no weights: none of model\.safetensors"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tmp_path: Path, change: Callable[[Path], None], message: str) -> None:
    save_tiny(tmp_path)
    change(tmp_path)
    with pytest.raises(ConfigError, match=message) as caught:
        get_model(tiny_config(tmp_path))
    assert str(caught.value).startswith("actor.model.model_path: ")
