"""The parts of Prismatic models (Karamcheti et al., arXiv 2402.07865), of which OpenVLA is one, as published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from rlinf.models.vla.vision_tower import Block, FiLMBlock, TowerShape, VisionTower, tower_shape

_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_HALVES = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


@dataclass(frozen=True, slots=True)
class PrismaticShape:
    """What the ``config.json`` of a published folder says.

    Attributes:
        towers: Sizes of one vision tower or two.
        image_size: Side of the images in pixels, the same for all towers.
        text: Keys of the language model's configuration.
        num_bins: Action tokens.
        vocab_size: Tokens without the padding of the vocabulary; the last ``num_bins`` of them stand for actions.
    """

    towers: tuple[TowerShape, ...]
    image_size: int
    text: Mapping[str, Any]
    num_bins: int
    vocab_size: int

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> PrismaticShape:
        """Read a published configuration.

        Raises:
            KeyError: A key is missing, or a tower is not known.
            ValueError: The towers take images of different sizes.
        """
        ids = config["timm_model_ids"]
        arguments = config.get("timm_model_args") or [None] * len(ids)
        sizes = set(config["image_sizes"])
        if len(sizes) != 1:
            raise ValueError(f"image_sizes has {sorted(sizes)}; only towers of one size can be fused")
        text = dict(config["text_config"])
        return cls(
            towers=tuple(tower_shape(name, given) for name, given in zip(ids, arguments, strict=True)),
            image_size=sizes.pop(),
            text=text,
            num_bins=config.get("n_action_bins", 256),
            vocab_size=text.get("vocab_size", 32000) - config.get("pad_to_multiple_of", 64),
        )


class VisionBackbone(nn.Module):
    """One vision tower, or the features of two next to each other.

    Args:
        shape: The model's sizes.
    """

    def __init__(self, shape: PrismaticShape) -> None:
        super().__init__()
        self.featurizer = VisionTower(shape.towers[0], shape.image_size)
        self.fused_featurizer = VisionTower(shape.towers[1], shape.image_size) if len(shape.towers) > 1 else None
        self.colours = [_IMAGENET if tower.class_token else _HALVES for tower in shape.towers]

    @property
    def embed_dim(self) -> int:
        """Width of the features (``E``)."""
        return sum(tower.embed_dim for tower in self.towers)

    @property
    def towers(self) -> list[VisionTower]:
        """The towers in their order."""
        return [tower for tower in (self.featurizer, self.fused_featurizer) if tower is not None]

    def forward(self, images: Sequence[torch.Tensor], words: torch.Tensor | None = None) -> torch.Tensor:
        """Return features [N, I * P, E], image by image.

        Args:
            images: ``I`` images, uint8 [N, S, S, 3].
            words: See ``VisionTower``.
        """
        seen = []
        for image in images:
            unit = image.permute(0, 3, 1, 2).float() / 255.0
            parts = [
                tower(_normalize(unit, mean, std), words)
                for tower, (mean, std) in zip(self.towers, self.colours, strict=True)
            ]
            seen.append(torch.cat(parts, -1))
        return torch.cat(seen, 1)


class FiLMBackbone(nn.Module):
    """A vision backbone whose blocks are modulated by the words; its parameters are those of the wrapped one, and more.

    Args:
        backbone: Taken over.
        word_width: Width of the word embeddings.
    """

    def __init__(self, backbone: VisionBackbone, word_width: int) -> None:
        super().__init__()
        self.vision_backbone = backbone
        for tower in backbone.towers:
            for index, block in enumerate(tower.blocks):
                assert isinstance(block, Block)
                tower.blocks[index] = FiLMBlock(block, tower.embed_dim, word_width)
            tower.blocks[-1].requires_grad_(False)

    @property
    def towers(self) -> list[VisionTower]:
        """The towers in their order."""
        return self.vision_backbone.towers

    def forward(self, images: Sequence[torch.Tensor], words: torch.Tensor) -> torch.Tensor:
        """See ``VisionBackbone``."""
        features: torch.Tensor = self.vision_backbone(images, words)
        return features


class Projector(nn.Module):
    """Maps features of patches to word embeddings: three layers behind fused towers, two behind a single one.

    Args:
        width: ``E``.
        word_width: ``W``.
        is_fused: Whether there are two towers.
    """

    def __init__(self, width: int, word_width: int, *, is_fused: bool) -> None:
        super().__init__()
        hidden = 4 * width if is_fused else word_width
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, word_width)
        self.fc3 = nn.Linear(word_width, word_width) if is_fused else None

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Map [N, P, E] to [N, P, W]."""
        output: torch.Tensor = self.fc2(F.gelu(self.fc1(features)))
        return output if self.fc3 is None else self.fc3(F.gelu(output))


class ProprioProjector(nn.Module):
    """Maps a state to one word embedding.

    Args:
        state_dim: ``S``.
        word_width: ``W``.
    """

    def __init__(self, state_dim: int, word_width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(state_dim, word_width)
        self.fc2 = nn.Linear(word_width, word_width)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        """Map [N, S] to [N, 1, W]."""
        output: torch.Tensor = self.fc2(F.gelu(self.fc1(state.to(self.fc1.weight.dtype))))
        return output.unsqueeze(1)


class L1Head(nn.Module):
    """Maps the hidden states of each action's tokens to its numbers (Kim et al., arXiv 2502.19645).

    Args:
        word_width: ``W``.
        action_dim: ``A``.
    """

    def __init__(self, word_width: int, action_dim: int) -> None:
        super().__init__()
        self.action_dim = action_dim
        self.model = _ResidualNetwork(word_width * action_dim, word_width, action_dim)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Map hidden states [N, C * A, W] to normalised actions [N, C, A], float32."""
        actions: torch.Tensor = self.model(hidden.reshape(len(hidden), -1, self.action_dim * hidden.shape[-1]))
        return actions.float()


class _ResidualNetwork(nn.Module):
    """Two residual layers between linear ones."""

    def __init__(self, input_dim: int, width: int, output_dim: int) -> None:
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(input_dim)
        self.fc1 = nn.Linear(input_dim, width)
        self.mlp_resnet_blocks = nn.Sequential(*(_ResidualLayer(width) for _ in range(2)))
        self.layer_norm2 = nn.LayerNorm(width)
        self.fc2 = nn.Linear(width, output_dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, C, A * W] to [N, C, A], in the precision of the weights."""
        x = F.relu(self.fc1(self.layer_norm1(x.to(self.fc1.weight.dtype))))
        output: torch.Tensor = self.fc2(self.layer_norm2(self.mlp_resnet_blocks(x)))
        return output


class _ResidualLayer(nn.Module):
    """A normalised linear layer with a rectifier, added."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.ffn = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, C, W] to the same shape."""
        output: torch.Tensor = x + self.ffn(x)
        return output


def _normalize(unit: torch.Tensor, mean: Sequence[float], std: Sequence[float]) -> torch.Tensor:
    """Return pixels [N, 3, S, S] in [0, 1] with the statistics of their colours removed."""
    return (unit - unit.new_tensor(mean).view(3, 1, 1)) / unit.new_tensor(std).view(3, 1, 1)
