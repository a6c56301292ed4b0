"""The parts of pi-0 and pi-0.5 by their published names: images and words before, the expert's flow behind."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from rlinf.models.vla.flow_vla import Prefix
from rlinf.models.vla.gemma import VARIANTS, GemmaStack
from rlinf.models.vla.layer_stack import StackShape
from rlinf.utils.optional import require

_VISION: Mapping[str, Any] = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "image_size": 224,
    "patch_size": 14,
}
_VOCABULARY = 257152
_SIZES: Mapping[str, Any] = {
    "action_dim": 32,
    "action_horizon": 50,
    "paligemma_variant": "gemma_2b",
    "action_expert_variant": "gemma_300m",
}
"""Of published models; what published training writes lacks ``config.json``."""
_LEROBOT = {"max_action_dim": "action_dim", "chunk_size": "action_horizon"}
"""What LeRobot calls them."""


@dataclass(frozen=True, slots=True)
class PiShape:
    """What the ``config.json`` of a published folder says; tiny models give sizes where published ones give names.

    Folders of LeRobot, which have another ``config.json``, hold the same model.

    Attributes:
        language: Sizes of the language model.
        expert: Sizes of the expert.
        vision: Keys of the SigLIP tower.
        vocab_size: Words.
        action_dim: Width of padded actions and states (``D``).
        horizon: Actions that are predicted (``H``).
        lerobot_type: ``pi0`` or ``pi05`` in folders of LeRobot; None in others.
    """

    language: StackShape
    expert: StackShape
    vision: Mapping[str, Any]
    vocab_size: int
    action_dim: int
    horizon: int
    lerobot_type: str | None = None

    @classmethod
    def of_config(cls, config: Mapping[str, Any]) -> PiShape:
        """Read a configuration.

        Args:
            config: What it says; sizes that are missing are the published ones.

        Raises:
            KeyError: A variant is not known, or the configuration is of another model.
        """
        said = {_LEROBOT.get(key, key): value for key, value in config.items()}
        if said and not said.keys() & _SIZES.keys():
            raise KeyError("action_dim")
        config = {**_SIZES, **said}
        language, expert = config["paligemma_variant"], config["action_expert_variant"]
        return cls(
            language=StackShape(**language) if isinstance(language, dict) else VARIANTS[language],
            expert=StackShape(**expert) if isinstance(expert, dict) else VARIANTS[expert],
            vision=config.get("vision_config", _VISION),
            vocab_size=config.get("vocab_size", _VOCABULARY),
            action_dim=config["action_dim"],
            horizon=config["action_horizon"],
            lerobot_type=config.get("type"),
        )


class PaliGemma(nn.Module):
    """SigLIP and Gemma.

    Args:
        shape: The model's sizes.
    """

    def __init__(self, shape: PiShape) -> None:
        super().__init__()
        parts = {
            "vision_tower": nn.ModuleDict({"vision_model": _vision_model(shape.vision)}),
            "multi_modal_projector": nn.ModuleDict(
                {"linear": nn.Linear(shape.vision["hidden_size"], shape.language.width)}
            ),
            "language_model": GemmaStack(shape.language, vocab_size=shape.vocab_size),
        }
        self.paligemma = nn.ModuleDict({"model": nn.ModuleDict(parts)})

    @property
    def parts(self) -> Mapping[str, Any]:
        """Vision tower, projector and language model, by their published names."""
        parts = self.paligemma["model"]
        assert isinstance(parts, nn.ModuleDict)
        return dict(parts.items())

    def compute_buffers(self) -> None:
        """Give the tower's numbers of patches their values, which no file holds."""
        embeddings = self.parts["vision_tower"]["vision_model"].embeddings
        embeddings.position_ids = torch.arange(embeddings.num_positions).unsqueeze(0)

    def see(self, images: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return what the language model reads of ``I`` images, uint8 [N, S, S, 3]: [N, I * P, W]."""
        tower, projector = self.parts["vision_tower"]["vision_model"], self.parts["multi_modal_projector"]["linear"]
        pixels = [(image.float() / 127.5 - 1.0).permute(0, 3, 1, 2) for image in images]
        return torch.cat([projector(tower(pixel_values=each).last_hidden_state) for each in pixels], 1)

    def prefix(self, images: Sequence[torch.Tensor], tokens: torch.Tensor, there: torch.Tensor) -> Prefix:
        """Return what the language model makes of images and words.

        Args:
            images: ``I`` images, uint8 [N, S, S, 3].
            tokens: int [N, L] of the prompt.
            there: bool [N, I + L]; false for images that are missing, and for padding.
        """
        language = self.parts["language_model"]
        embedded = self.see(images)
        patches = embedded.shape[1] // len(images)
        seen = there[:, : len(images)].repeat_interleave(patches, 1)
        mask = torch.cat([seen, there[:, len(images) :]], 1)
        words = language.embed_tokens(tokens.long())
        sequence = torch.cat([embedded, words * math.sqrt(words.shape[-1])], 1)
        visible = mask[:, None, None, :].expand(-1, 1, mask.shape[1], -1)
        output, kept = language(sequence, mask=visible, positions=(mask.cumsum(1) - 1).clamp(min=0))
        return Prefix(kept, mask, output)


class PaliGemmaWithExpert(PaliGemma):
    """SigLIP and Gemma, and the expert that shares their attention.

    Args:
        shape: The model's sizes.
        is_adaptive: Whether time modulates the expert's norms (pi-0.5).
    """

    def __init__(self, shape: PiShape, *, is_adaptive: bool) -> None:
        super().__init__(shape)
        self.gemma_expert = nn.ModuleDict({"model": GemmaStack(shape.expert, is_adaptive=is_adaptive)})

    @property
    def expert(self) -> Any:
        """The expert's layers."""
        return self.gemma_expert["model"]


def _vision_model(keys: Mapping[str, Any]) -> Any:
    transformers = require("transformers", needed_by="model_type=openpi")
    config = transformers.SiglipVisionConfig(**keys, vision_use_head=False, hidden_act="gelu_pytorch_tanh")
    config._attn_implementation = "sdpa"
    return transformers.SiglipVisionModel(config)
