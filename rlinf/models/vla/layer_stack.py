"""Transformer layers by their published names, with norms that a condition may modulate and keys of a prefix.

Two stacks run over one attention: the language model over images and words, then the expert over actions, which also
attends to the keys of the former (Black et al., arXiv 2410.24164). Each layer is called by itself, so that it can be
sharded and recomputed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

_ROTARY_BASE = 10000.0

KeysValues = tuple[torch.Tensor, torch.Tensor]
"""Keys and values of one layer, both [N, 1 or more heads, T, head_dim]."""
Activation = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class StackShape:
    """Sizes of a stack, by their published names.

    Attributes:
        width: Of the stream (``W``).
        depth: Layers.
        mlp_dim: Width of the hidden layers.
        num_heads: Heads of queries.
        num_kv_heads: Heads of keys and values.
        head_dim: Width of a head, the same in stacks that share their attention.
    """

    width: int
    depth: int
    mlp_dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int


class Layer(nn.Module):
    """Attention and a gated hidden layer.

    Args:
        shape: Sizes of the stack.
        attention: ``Attention``, or another module that is called as it.
        norm: Makes a norm of a width; it returns what it normalised, and a gate of the residual or None.
        activation: Of the gate.
    """

    def __init__(
        self, shape: StackShape, *, attention: nn.Module, norm: Callable[[int], nn.Module], activation: Activation
    ) -> None:
        super().__init__()
        self.self_attn = attention
        self.mlp = GatedLayer(shape, activation)
        self.input_layernorm = norm(shape.width)
        self.post_attention_layernorm = norm(shape.width)

    def forward(
        self,
        x: torch.Tensor,
        *,
        mask: torch.Tensor,
        positions: torch.Tensor,
        before: KeysValues | None = None,
        condition: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, KeysValues]:
        """Return the stream behind the layer, [N, T, W], and the keys and values of its tokens.

        Args:
            x: [N, T, W].
            mask: bool [N, 1, T, P + T]; which token attends to which.
            positions: int [N, T].
            before: Keys and values of ``P`` tokens before these.
            condition: [N, T, W] for adaptive norms.
        """
        normed, gate = self.input_layernorm(x, condition)
        attended, own = self.self_attn(normed, mask=mask, positions=positions, before=before)
        x = x + (attended if gate is None else attended * gate)
        normed, gate = self.post_attention_layernorm(x, condition)
        fed = self.mlp(normed)
        return x + (fed if gate is None else fed * gate), own


class Attention(nn.Module):
    """Attention with rotary positions; several heads of queries share one of keys.

    Args:
        shape: Sizes of the stack.
        source_width: Of what keys and values are made of; None makes them of the stream.
    """

    def __init__(self, shape: StackShape, *, source_width: int | None = None) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        source = source_width or shape.width
        self.q_proj = nn.Linear(shape.width, shape.num_heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(source, shape.num_kv_heads * shape.head_dim, bias=False)
        self.v_proj = nn.Linear(source, shape.num_kv_heads * shape.head_dim, bias=False)
        self.o_proj = nn.Linear(shape.num_heads * shape.head_dim, shape.width, bias=False)

    def forward(
        self, x: torch.Tensor, *, mask: torch.Tensor, positions: torch.Tensor, before: KeysValues | None
    ) -> tuple[torch.Tensor, KeysValues]:
        """See ``Layer``."""
        cos, sin = rotary(positions, self.head_dim)
        query, key = (rotated(self.heads(project(x)), cos, sin) for project in (self.q_proj, self.k_proj))
        own = (key, self.heads(self.v_proj(x)))
        seen = own if before is None else (torch.cat([before[0], own[0]], 2), torch.cat([before[1], own[1]], 2))
        return self.mix(query, seen, mask), own

    def mix(self, query: torch.Tensor, seen: KeysValues, mask: torch.Tensor) -> torch.Tensor:
        """Return what queries [N, heads, T, head_dim] find in keys and values, [N, T, W]."""
        mixed = F.scaled_dot_product_attention(query, *seen, attn_mask=mask, enable_gqa=True)
        output: torch.Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return output

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        """Return [N, T, heads * head_dim] as [N, heads, T, head_dim]."""
        return x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)


class GatedLayer(nn.Module):
    """A hidden layer whose units are gated.

    Args:
        shape: Sizes of the stack.
        activation: Of the gate.
    """

    def __init__(self, shape: StackShape, activation: Activation) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.mlp_dim, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.mlp_dim, bias=False)
        self.down_proj = nn.Linear(shape.mlp_dim, shape.width, bias=False)
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, T, W] to the same shape."""
        output: torch.Tensor = self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))
        return output


class LayerStack(nn.Module):
    """Layers and the last norm, with word embeddings for a language model.

    Args:
        layers: ``Layer``, in their order.
        norm: As those of the layers.
        embeddings: Of words; None for an expert.
    """

    def __init__(self, layers: Sequence[Layer], norm: nn.Module, embeddings: nn.Embedding | None = None) -> None:
        super().__init__()
        self.embed_tokens = embeddings
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    def forward(
        self,
        x: torch.Tensor,
        *,
        mask: torch.Tensor,
        positions: torch.Tensor,
        before: Sequence[KeysValues] | None = None,
        condition: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, list[KeysValues]]:
        """Return the output [N, T, W], and keys and values of each layer; see ``Layer``."""
        kept = []
        for index, layer in enumerate(self.layers):
            past = None if before is None else before[index]
            x, own = layer(x, mask=mask, positions=positions, before=past, condition=condition)
            kept.append(own)
        output, _ = self.norm(x, condition)
        return output, kept


def rotary(positions: torch.Tensor, head_dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and sines of positions int [N, T], both float32 [N, 1, T, head_dim]."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device=positions.device) / head_dim
    angles = positions.float().unsqueeze(-1) / _ROTARY_BASE**exponents
    both = torch.cat([angles, angles], -1).unsqueeze(1)
    return both.cos(), both.sin()


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return queries or keys [N, heads, T, head_dim] turned to their positions."""
    first, second = x.chunk(2, -1)
    return x * cos.to(x.dtype) + torch.cat([-second, first], -1) * sin.to(x.dtype)
