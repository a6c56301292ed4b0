"""Gemma's layers by their published names, with norms that a condition may modulate and keys of a prefix.

Pi-0 runs two stacks over one attention: the language model over images and words, then the expert over state and
actions, which also attends to the keys of the former (Black et al., arXiv 2410.24164). Each layer is called by itself,
so that it can be sharded and recomputed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

_EPSILON = 1e-6
_ROTARY_BASE = 10000.0

KeysValues = tuple[torch.Tensor, torch.Tensor]
"""Keys and values of one layer, both [N, 1 or more heads, T, head_dim]."""


@dataclass(frozen=True, slots=True)
class GemmaShape:
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


VARIANTS: dict[str, GemmaShape] = {
    "gemma_2b": GemmaShape(2048, 18, 16384, 8, 1, 256),
    "gemma_300m": GemmaShape(1024, 18, 4096, 8, 1, 256),
}
"""What published configurations name."""


class RMSNorm(nn.Module):
    """Root-mean-square norm whose weight is a deviation from 1.

    Args:
        width: ``W``.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor, condition: torch.Tensor | None = None) -> tuple[torch.Tensor, None]:
        """Return the normalised [N, T, W], and that the residual has no gate."""
        return (_normalized(x) * (1.0 + self.weight.float())).to(x.dtype), None


class AdaptiveNorm(nn.Module):
    """The same with scale, shift and the residual's gate taken from a condition (Peebles and Xie, arXiv 2212.09748).

    Args:
        width: ``W``, also of the condition.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, 3 * width)

    def forward(self, x: torch.Tensor, condition: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the normalised [N, T, W] and the gate.

        Args:
            x: [N, T, W].
            condition: [N, T, W]; of each token.
        """
        assert condition is not None
        scale, shift, gate = self.dense(condition).chunk(3, -1)
        return (_normalized(x) * (1.0 + scale.float()) + shift.float()).to(x.dtype), gate.to(x.dtype)


class GemmaLayer(nn.Module):
    """Attention and a gated hidden layer.

    Args:
        shape: Sizes of the stack.
        is_adaptive: Whether norms are conditioned.
    """

    def __init__(self, shape: GemmaShape, *, is_adaptive: bool) -> None:
        super().__init__()
        norm = AdaptiveNorm if is_adaptive else RMSNorm
        self.self_attn = Attention(shape)
        self.mlp = GatedLayer(shape)
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
    """

    def __init__(self, shape: GemmaShape) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        self.q_proj = nn.Linear(shape.width, shape.num_heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(shape.width, shape.num_kv_heads * shape.head_dim, bias=False)
        self.v_proj = nn.Linear(shape.width, shape.num_kv_heads * shape.head_dim, bias=False)
        self.o_proj = nn.Linear(shape.num_heads * shape.head_dim, shape.width, bias=False)

    def forward(
        self, x: torch.Tensor, *, mask: torch.Tensor, positions: torch.Tensor, before: KeysValues | None
    ) -> tuple[torch.Tensor, KeysValues]:
        """See ``GemmaLayer``."""
        cos, sin = rotary(positions, self.head_dim)
        query = _rotated(self._heads(self.q_proj(x)), cos, sin)
        key, value = _rotated(self._heads(self.k_proj(x)), cos, sin), self._heads(self.v_proj(x))
        own = (key, value)
        if before is not None:
            key, value = torch.cat([before[0], key], 2), torch.cat([before[1], value], 2)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)
        output: torch.Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return output, own

    def _heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)


class GatedLayer(nn.Module):
    """Gemma's hidden layer, gated by a tanh-approximated GELU.

    Args:
        shape: Sizes of the stack.
    """

    def __init__(self, shape: GemmaShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.mlp_dim, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.mlp_dim, bias=False)
        self.down_proj = nn.Linear(shape.mlp_dim, shape.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, T, W] to the same shape."""
        output: torch.Tensor = self.down_proj(F.gelu(self.gate_proj(x), approximate="tanh") * self.up_proj(x))
        return output


class GemmaStack(nn.Module):
    """Layers and the last norm, with word embeddings for a language model.

    Args:
        shape: Its sizes.
        is_adaptive: Whether norms are conditioned.
        vocab_size: Words; None has no embeddings.
    """

    def __init__(self, shape: GemmaShape, *, is_adaptive: bool = False, vocab_size: int | None = None) -> None:
        super().__init__()
        self.embed_tokens = None if vocab_size is None else nn.Embedding(vocab_size, shape.width)
        self.layers = nn.ModuleList(GemmaLayer(shape, is_adaptive=is_adaptive) for _ in range(shape.depth))
        self.norm = (AdaptiveNorm if is_adaptive else RMSNorm)(shape.width)

    def forward(
        self,
        x: torch.Tensor,
        *,
        mask: torch.Tensor,
        positions: torch.Tensor,
        before: Sequence[KeysValues] | None = None,
        condition: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, list[KeysValues]]:
        """Return the output [N, T, W], and keys and values of each layer; see ``GemmaLayer``."""
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


def _rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * cos.to(x.dtype) + torch.cat([-second, first], -1) * sin.to(x.dtype)


def _normalized(x: torch.Tensor) -> torch.Tensor:
    """Return ``x`` over its root mean square, in float32."""
    wide = x.float()
    return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + _EPSILON)
