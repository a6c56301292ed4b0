"""The parameters of a decoder-only language model, from the ``config.json`` of its Hugging Face checkpoint alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf.errors import ConfigError

Shape = tuple[int, ...]
_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe")


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSizes:
    """Sizes of a model of the families Llama, Mistral, Qwen2, Qwen3 and Qwen3-MoE.

    Attributes:
        family: ``model_type`` of the configuration.
        hidden: Width of the residual stream (``H``).
        intermediate: Width of a layer's feed-forward part; of an expert, where a layer has experts.
        num_layers: Decoder layers.
        num_heads: Query heads.
        num_kv_heads: Key and value heads.
        head_dim: Width of a head.
        vocabulary: Rows of the embedding.
        num_experts: Experts of a layer; 0 for a dense model.
        experts_per_token: Experts that compute each token; 1 for a dense model.
        is_tied: Whether the output layer is the embedding.
        has_qkv_bias: Whether queries, keys and values have biases.
        has_output_bias: Whether the output of the attention has one.
        has_mlp_bias: Whether the feed-forward part has biases.
    """

    family: str
    hidden: int
    intermediate: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocabulary: int
    num_experts: int = 0
    experts_per_token: int = 1
    is_tied: bool = False
    has_qkv_bias: bool = False
    has_output_bias: bool = False
    has_mlp_bias: bool = False

    @classmethod
    def of_folder(cls, folder: Path) -> DecoderSizes:
        """Read the configuration of a checkpoint.

        Args:
            folder: Holds ``config.json``.

        Raises:
            ConfigError: It holds none, or that of another family.
        """
        try:
            content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            return cls.of_config(content)
        except (OSError, ValueError, KeyError) as error:
            raise ConfigError(f"actor.model.model_path: '{folder}' holds no usable config.json: {error}.") from error

    @classmethod
    def of_config(cls, content: Mapping[str, Any]) -> DecoderSizes:
        """Return the sizes that a configuration states.

        Args:
            content: What ``config.json`` holds.

        Raises:
            ConfigError: It is of another family.
            KeyError: A size is missing.
        """
        family = content["model_type"]
        if family not in _FAMILIES:
            raise ConfigError(f"Sizes of '{family}' are not known, only those of {', '.join(_FAMILIES)}.")
        has_experts = family == "qwen3_moe"
        if has_experts and (content.get("mlp_only_layers") or content.get("decoder_sparse_step", 1) != 1):
            raise ConfigError("Sizes of models with experts in some layers only are not known.")
        heads = content["num_attention_heads"]
        own_bias = bool(content.get("attention_bias", False))
        return cls(
            family=family,
            hidden=content["hidden_size"],
            intermediate=content["moe_intermediate_size" if has_experts else "intermediate_size"],
            num_layers=content["num_hidden_layers"],
            num_heads=heads,
            num_kv_heads=content.get("num_key_value_heads") or heads,
            head_dim=content.get("head_dim") or (128 if family == "qwen3" else content["hidden_size"] // heads),
            vocabulary=content["vocab_size"],
            num_experts=content["num_experts"] if has_experts else 0,
            experts_per_token=content["num_experts_per_tok"] if has_experts else 1,
            is_tied=bool(content.get("tie_word_embeddings", False)),
            has_qkv_bias=own_bias or family == "qwen2",
            has_output_bias=own_bias,
            has_mlp_bias=bool(content.get("mlp_bias", False)),
        )

    def parameters(self) -> dict[str, Shape]:
        """Return the shape of every parameter, by the name that the training model gives it."""
        shapes: dict[str, Shape] = {"model.embed_tokens.weight": (self.vocabulary, self.hidden)}
        layer = dict(self._layer())
        for index in range(self.num_layers):
            shapes |= {f"model.layers.{index}.{name}": shape for name, shape in layer.items()}
        shapes["model.norm.weight"] = (self.hidden,)
        return shapes if self.is_tied else shapes | {"lm_head.weight": (self.vocabulary, self.hidden)}

    def activation_elements(self) -> int:
        """Return the numbers that a layer keeps for the gradient, for each token.

        Inputs and outputs of both norms, queries, keys, values and the attention's output; gate, up, their product and
        the activated gate of each expert that computes the token: ``4H + 2(heads + kv_heads) * head_dim + 4 * k * I``.
        """
        attention = 2 * (self.num_heads + self.num_kv_heads) * self.head_dim
        return 4 * self.hidden + attention + 4 * self.experts_per_token * self.intermediate

    def cache_elements(self) -> int:
        """Return the keys and values that a generation engine keeps for each token of a sequence."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim

    def _layer(self) -> Iterator[tuple[str, Shape]]:
        hidden, queries, keys = self.hidden, self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        for name, rows in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)):
            yield from _linear(f"self_attn.{name}", rows, hidden, self.has_qkv_bias)
        yield from _linear("self_attn.o_proj", hidden, queries, self.has_output_bias)
        if self.family.startswith("qwen3"):
            yield "self_attn.q_norm.weight", (self.head_dim,)
            yield "self_attn.k_norm.weight", (self.head_dim,)
        if self.num_experts:
            yield "mlp.gate.weight", (self.num_experts, hidden)
            yield "mlp.experts.gate_up_proj", (self.num_experts, 2 * self.intermediate, hidden)
            yield "mlp.experts.down_proj", (self.num_experts, hidden, self.intermediate)
        else:
            yield from _linear("mlp.gate_proj", self.intermediate, hidden, self.has_mlp_bias)
            yield from _linear("mlp.up_proj", self.intermediate, hidden, self.has_mlp_bias)
            yield from _linear("mlp.down_proj", hidden, self.intermediate, self.has_mlp_bias)
        yield "input_layernorm.weight", (hidden,)
        yield "post_attention_layernorm.weight", (hidden,)


def adapter_shapes(parameters: Mapping[str, Shape], targets: tuple[str, ...], rank: int) -> dict[str, Shape]:
    """Return the shapes of the low-rank adapters of a model's linear layers.

    Args:
        parameters: Of the model.
        targets: Names of the layers that have adapters.
        rank: Of the adapters.
    """
    shapes: dict[str, Shape] = {}
    for name, shape in parameters.items():
        layer, _, kind = name.rpartition(".")
        if kind == "weight" and layer.rpartition(".")[2] in targets:
            shapes |= {f"{layer}.lora_A": (rank, shape[1]), f"{layer}.lora_B": (shape[0], rank)}
    return shapes


def shard_elements(shapes: Mapping[str, Shape], num_ranks: int) -> int:
    """Return the numbers that the first of some ranks holds, of tensors that are split by rows.

    Args:
        shapes: Of the tensors, by name.
        num_ranks: Ranks; 1 holds all.
    """
    return sum(-(-shape[0] // num_ranks) * math.prod(shape[1:]) for shape in shapes.values())


def _linear(name: str, rows: int, columns: int, has_bias: bool) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (rows, columns)
    if has_bias:
        yield f"{name}.bias", (rows,)
