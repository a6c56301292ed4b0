"""A Qwen3-MoE with random weights, small enough for unit tests, and where transformers sends its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

SIZES = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 3, "head_dim": 8}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": False}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "norm_topk_prob": True}


def save_tiny_experts(folder: Path, *, router_noise: float = 0.3) -> Path:
    """Write a model.

    Args:
        folder: Where to.
        router_noise: Of the routers' weights: the less, the closer their decisions.
    """
    import transformers

    torch.manual_seed(0)
    model = transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**SIZES, **HEADS, **EXPERTS, eos_token_id=1))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.add_(torch.randn_like(parameter), alpha=router_noise if "gate.weight" in name else 0.3)
    model.save_pretrained(folder)
    return folder


@torch.no_grad()
def routes_of(model: Any, token_ids: Sequence[int]) -> np.ndarray[Any, Any]:
    """Return where transformers sends a sequence's tokens, [L, layers, chosen], numbered from 1."""
    found: list[torch.Tensor] = []
    hooks = [
        layer.mlp.gate.register_forward_hook(lambda _, __, output: found.append(output[2] + 1))
        for layer in model.model.layers
    ]
    model(torch.tensor([list(token_ids)]))
    for hook in hooks:
        hook.remove()
    return torch.stack(found, dim=1).numpy()
