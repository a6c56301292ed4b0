"""GR00T's transformers by their published names: a diffusion transformer that looks across at images and words.

Peebles and Xie, arXiv 2212.09748, with cross attention (GR00T N1, arXiv 2503.14734). Several points of a flow stand
side by side: each attends to what is seen and to itself alone. Dropout of the published code, which training of
policies switches off, is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

_EPSILON = 1e-5
"""Of the norms before attention and hidden layers."""
_LAST_EPSILON = 1e-6
"""Of the norm behind the last layer."""
_TIME_WIDTH = 256
"""Sines and cosines of a moment."""
_LONGEST = 10000.0
"""Ratio between the longest and the shortest period."""
_HIDDEN_FACTOR = 4
"""How many times wider hidden layers are."""


@dataclass(frozen=True, slots=True)
class TransformerShape:
    """Sizes of a stack of blocks, by their published names.

    Attributes:
        num_layers: Blocks.
        num_heads: Heads of attention.
        head_dim: Width of a head.
        output_dim: Width of what a diffusion transformer returns.
        is_interleaved: Every second block attends to its own tokens instead of what is seen.
    """

    num_layers: int
    num_heads: int
    head_dim: int
    output_dim: int = 0
    is_interleaved: bool = False

    @property
    def width(self) -> int:
        """Width of the stream (``W``)."""
        return self.num_heads * self.head_dim

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> TransformerShape:
        """Read a configuration of the published code.

        Raises:
            KeyError: A key is missing.
            ValueError: It is of a kind that was not published.
        """
        if config.get("positional_embeddings") is not None:
            raise ValueError(f"positional_embeddings {config['positional_embeddings']}; null alone is supported")
        return cls(
            num_layers=config["num_layers"],
            num_heads=config["num_attention_heads"],
            head_dim=config["attention_head_dim"],
            output_dim=config.get("output_dim", 0),
            is_interleaved=config.get("interleave_self_attention", False),
        )


class Attention(nn.Module):
    """Attention without positions.

    Args:
        shape: Sizes of the stack.
        source_width: Of what keys and values are made of.
    """

    def __init__(self, shape: TransformerShape, source_width: int) -> None:
        super().__init__()
        self.head_dim, width = shape.head_dim, shape.width
        self.to_q = nn.Linear(width, width)
        self.to_k, self.to_v = nn.Linear(source_width, width), nn.Linear(source_width, width)
        self.to_out = nn.ModuleList([nn.Linear(width, width)])

    def forward(self, x: torch.Tensor, source: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Return what tokens [N, T, W] find in a source [N, S, ...], [N, T, W].

        Args:
            x: Its tokens ask.
            source: Its tokens answer.
            mask: bool [N, 1, 1, S]; false for padding.
        """
        query, key, value = (
            projected.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for projected in (self.to_q(x), self.to_k(source), self.to_v(source))
        )
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        output: torch.Tensor = self.to_out[0](mixed.transpose(1, 2).flatten(2))
        return output


class AdaptiveNorm(nn.Module):
    """Layer norm with scale and shift of a moment.

    Args:
        width: ``W``, also of the moment's embedding.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, 2 * width)

    def forward(self, x: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        """Return the normalised [N, J, T, W]; ``moment`` is [N, J, 1, W]."""
        scale, shift = self.linear(F.silu(moment)).chunk(2, -1)
        normed: torch.Tensor = F.layer_norm(x, x.shape[-1:], eps=_EPSILON) * (1.0 + scale) + shift
        return normed


class HiddenLayer(nn.Module):
    """A hidden layer with a tanh-approximated GELU.

    Args:
        width: ``W``.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = nn.ModuleDict({"proj": nn.Linear(width, _HIDDEN_FACTOR * width)})
        # What is between them in published files has no weights.
        self.net = nn.ModuleList([inner, nn.Identity(), nn.Linear(_HIDDEN_FACTOR * width, width)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [..., W] to the same shape."""
        inner: Any = self.net[0]
        output: torch.Tensor = self.net[2](F.gelu(inner["proj"](x), approximate="tanh"))
        return output


class Block(nn.Module):
    """Attention and a hidden layer.

    Args:
        shape: Sizes of the stack.
        source_width: Of what is seen; None attends to the block's own tokens.
        is_adaptive: Whether a moment modulates the first norm; otherwise norms have weights of their own.
    """

    def __init__(self, shape: TransformerShape, *, source_width: int | None, is_adaptive: bool) -> None:
        super().__init__()
        width = shape.width
        self.looks_across = source_width is not None
        self.norm1 = AdaptiveNorm(width) if is_adaptive else nn.LayerNorm(width, eps=_EPSILON)
        self.attn1 = Attention(shape, source_width or width)
        self.norm3 = nn.LayerNorm(width, eps=_EPSILON, elementwise_affine=not is_adaptive)
        self.ff = HiddenLayer(width)

    def forward(
        self,
        x: torch.Tensor,
        *,
        mask: torch.Tensor,
        seen: torch.Tensor | None = None,
        moment: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the stream behind the block, [N, J, T, W].

        Args:
            x: [N, J, T, W]; ``J`` points that do not see each other.
            mask: bool [N, 1, 1, P]; of what is seen, or of the block's own tokens where nothing else is.
            seen: [N, P, S].
            moment: [N, J, 1, W] for adaptive norms.
        """
        normed = self.norm1(x) if moment is None else self.norm1(x, moment)
        if self.looks_across:
            assert seen is not None
            attended = self.attn1(normed.flatten(1, 2), seen, mask)
        else:
            own = normed.flatten(0, 1)
            attended = self.attn1(own, own, mask if seen is None else None)
        x = x + attended.view_as(x)
        fed: torch.Tensor = self.ff(self.norm3(x))
        return x + fed


class SelfAttentionTransformer(nn.Module):
    """Blocks that mix what was seen and read.

    Args:
        shape: Its sizes.
    """

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        blocks = [Block(shape, source_width=None, is_adaptive=False) for _ in range(shape.num_layers)]
        self.transformer_blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor, there: torch.Tensor) -> torch.Tensor:
        """Map [N, P, W] to the same shape; ``there`` is bool [N, P], false for padding."""
        points, mask = x.unsqueeze(1), there[:, None, None, :]
        for block in self.transformer_blocks:
            points = block(points, mask=mask)
        return points.squeeze(1)


class DiffusionTransformer(nn.Module):
    """Blocks that look across, modulated by the moment of the flow.

    Args:
        shape: Its sizes.
        source_width: Of what is seen.
    """

    def __init__(self, shape: TransformerShape, *, source_width: int) -> None:
        super().__init__()
        width = shape.width
        embedder = {"linear_1": nn.Linear(_TIME_WIDTH, width), "linear_2": nn.Linear(width, width)}
        self.timestep_encoder = nn.ModuleDict({"timestep_embedder": nn.ModuleDict(embedder)})
        self.transformer_blocks = nn.ModuleList(
            Block(
                shape,
                source_width=None if shape.is_interleaved and index % 2 else source_width,
                is_adaptive=True,
            )
            for index in range(shape.num_layers)
        )
        self.proj_out_1, self.proj_out_2 = nn.Linear(width, 2 * width), nn.Linear(width, shape.output_dim)

    def forward(
        self, x: torch.Tensor, *, bucket: torch.Tensor, seen: torch.Tensor, there: torch.Tensor
    ) -> torch.Tensor:
        """Return [N, J, T, output_dim].

        Args:
            x: [N, J, T, W].
            bucket: int [N, J]; the moment of each point.
            seen: [N, P, S].
            there: bool [N, P]; false for padding.
        """
        sines, cosines = sinusoids(bucket, _TIME_WIDTH, last_divisor=_TIME_WIDTH // 2 - 1)
        embedder: Any = self.timestep_encoder["timestep_embedder"]
        inner = embedder["linear_1"](torch.cat([cosines, sines], -1).to(x.dtype))
        moment = embedder["linear_2"](F.silu(inner)).unsqueeze(-2)
        mask = there[:, None, None, :]
        for block in self.transformer_blocks:
            x = block(x, mask=mask, seen=seen, moment=moment)
        shift, scale = self.proj_out_1(F.silu(moment)).chunk(2, -1)
        normed = F.layer_norm(x, x.shape[-1:], eps=_LAST_EPSILON)
        output: torch.Tensor = self.proj_out_2(normed * (1.0 + scale) + shift)
        return output


def sinusoids(bucket: torch.Tensor, width: int, *, last_divisor: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return sines and cosines of moments, both float32 [..., width / 2].

    Args:
        bucket: int [...].
        width: Of both together.
        last_divisor: What the exponents of the periods are divided by; rounding is that of the published code.
    """
    exponents = torch.arange(width // 2, dtype=torch.float32, device=bucket.device)
    frequencies = (-math.log(_LONGEST) * exponents / last_divisor).exp()
    angles = bucket.float().unsqueeze(-1) * frequencies
    return angles.sin(), angles.cos()
