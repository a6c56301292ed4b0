"""Vision transformers by the names that timm gives their parameters: DINOv2 with registers, and SigLIP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class TowerShape:
    """Sizes of a vision transformer, by timm's names.

    Attributes:
        embed_dim: Width.
        depth: Blocks.
        num_heads: Attention heads.
        patch_size: Side of a patch in pixels.
        mlp_ratio: Width of the hidden layer over ``embed_dim``.
        reg_tokens: Registers.
        class_token: Whether there is a class token (DINOv2); otherwise an attention pool follows the blocks (SigLIP).
        init_values: Anything but None: the outputs of attention and of the hidden layer are scaled.
    """

    embed_dim: int
    depth: int
    num_heads: int
    patch_size: int = 14
    mlp_ratio: float = 4.0
    reg_tokens: int = 0
    class_token: bool = True
    init_values: float | None = None


_DINOV2_LARGE = TowerShape(1024, 24, 16, reg_tokens=4, init_values=1e-5)
_SIGLIP_SO400M = TowerShape(1152, 27, 16, mlp_ratio=3.7362, class_token=False)
TOWERS: Mapping[str, TowerShape] = {
    "vit_large_patch14_reg4_dinov2.lvd142m": _DINOV2_LARGE,
    "vit_so400m_patch14_siglip_224": _SIGLIP_SO400M,
    "vit_so400m_patch14_siglip_384": _SIGLIP_SO400M,
}
"""What published configurations name in ``timm_model_ids``."""


class VisionTower(nn.Module):
    """Features of patches behind the last block but one; what follows it is kept as published and not used.

    Args:
        shape: Its sizes.
        image_size: Side of the images in pixels.
    """

    def __init__(self, shape: TowerShape, image_size: int) -> None:
        super().__init__()
        width = shape.embed_dim
        self.num_patches = (image_size // shape.patch_size) ** 2
        self.embed_dim = width
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(3, width, shape.patch_size, shape.patch_size)})
        self.pos_embed = nn.Parameter(torch.zeros(1, self.num_patches, width))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width)) if shape.class_token else None
        self.reg_token = nn.Parameter(torch.zeros(1, shape.reg_tokens, width)) if shape.reg_tokens else None
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.depth))
        self.norm = nn.LayerNorm(width, eps=_EPSILON)
        self.attn_pool = None if shape.class_token else AttentionPool(shape)
        for module in (self.blocks[-1], self.norm, self.attn_pool):
            if module is not None:
                module.requires_grad_(False)

    def forward(self, pixels: torch.Tensor, words: torch.Tensor | None = None) -> torch.Tensor:
        """Return features [N, P, E].

        Args:
            pixels: [N, 3, S, S], colours normalised.
            words: [N, W]; mean embedding of the prompt, for blocks that it modulates.
        """
        x = self.patch_embed["proj"](pixels.to(self.pos_embed.dtype)).flatten(2).transpose(1, 2) + self.pos_embed
        prefix = [token.expand(len(x), -1, -1) for token in (self.cls_token, self.reg_token) if token is not None]
        x = torch.cat([*prefix, x], 1)
        for block in self.blocks[:-1]:
            x = block(x) if words is None else block(x, words)
        features: torch.Tensor = x[:, sum(token.shape[1] for token in prefix) :]
        return features


class Block(nn.Module):
    """One block: attention and a hidden layer, each normalised before and added.

    Args:
        shape: The tower's sizes.
    """

    def __init__(self, shape: TowerShape) -> None:
        super().__init__()
        width, scales = shape.embed_dim, shape.init_values is not None
        self.norm1 = nn.LayerNorm(width, eps=_EPSILON)
        self.attn = Attention(width, shape.num_heads)
        self.ls1: nn.Module = LayerScale(width) if scales else nn.Identity()
        self.norm2 = nn.LayerNorm(width, eps=_EPSILON)
        self.mlp = HiddenLayer(width, int(width * shape.mlp_ratio))
        self.ls2: nn.Module = LayerScale(width) if scales else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, T, E] to the same shape."""
        return self.feed(self.attend(x))

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        """Return the first half: ``x`` and what it attends to."""
        attended: torch.Tensor = x + self.ls1(self.attn(self.norm1(x)))
        return attended

    def feed(self, x: torch.Tensor) -> torch.Tensor:
        """Return the second half: ``x`` and the output of the hidden layer."""
        output: torch.Tensor = x + self.ls2(self.mlp(self.norm2(x)))
        return output


class FiLMBlock(nn.Module):
    """A block whose stream is scaled and shifted by the words between its halves (Perez et al., arXiv 1709.07871).

    Args:
        block: What it modulates.
        width: Of the block.
        word_width: Of the word embeddings.
    """

    def __init__(self, block: Block, width: int, word_width: int) -> None:
        super().__init__()
        self.block = block
        self.scale = nn.Linear(word_width, width)
        self.shift = nn.Linear(word_width, width)

    def forward(self, x: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        """Map [N, T, E] and mean word embeddings [N, W] to [N, T, E]."""
        scale, shift = self.scale(words).unsqueeze(1), self.shift(words).unsqueeze(1)
        return self.block.feed(self.block.attend(x) * (1.0 + scale) + shift)


class Attention(nn.Module):
    """Self-attention without a mask.

    Args:
        width: ``E``.
        num_heads: Heads.
    """

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, T, E] to the same shape."""
        query, key, value = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value)
        output: torch.Tensor = self.proj(mixed.transpose(1, 2).flatten(2))
        return output


class HiddenLayer(nn.Module):
    """A linear layer, the exact GELU, and a linear layer.

    Args:
        width: ``E``.
        hidden: Width between them.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, T, E] to the same shape."""
        output: torch.Tensor = self.fc2(F.gelu(self.fc1(x)))
        return output


class LayerScale(nn.Module):
    """A factor for each feature; published checkpoints call timm's ``gamma`` ``scale_factor``.

    Args:
        width: ``E``.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale_factor = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale [N, T, E]."""
        return x * self.scale_factor


class AttentionPool(nn.Module):
    """SigLIP's pooling, which policies do not use: parameters of the published files, and no computation.

    Args:
        shape: The tower's sizes.
    """

    def __init__(self, shape: TowerShape) -> None:
        super().__init__()
        width = shape.embed_dim
        self.latent = nn.Parameter(torch.zeros(1, 1, width))
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * width)
        self.proj = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=_EPSILON)
        self.mlp = HiddenLayer(width, int(width * shape.mlp_ratio))


def tower_shape(model_id: str, arguments: Mapping[str, Any] | None) -> TowerShape:
    """Return the sizes of a tower.

    Args:
        model_id: An entry of ``timm_model_ids``.
        arguments: An entry of ``timm_model_args``, which configurations of other towers have; None for published ones.

    Raises:
        KeyError: The tower is not known and has no arguments.
    """
    return TOWERS[model_id] if arguments is None else TowerShape(**arguments)
