"""The parts of SmolVLA by their published names: SmolVLM2's first layers, and the expert that looks across at them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from rlinf.models.vla.flow_vla import Prefix
from rlinf.models.vla.layer_stack import Attention, KeysValues, Layer, LayerStack, StackShape, rotary, rotated
from rlinf.utils.optional import require

_MULTIPLE = 256
"""The expert's hidden layers have a multiple of this width."""


@dataclass(frozen=True, slots=True)
class SmolVLAShape:
    """What the configurations of a published policy and of its vision-language model say.

    Attributes:
        language: Sizes of the language model, of which the first layers are kept.
        expert: Sizes of the expert.
        vision: Configuration of the tower.
        vocab_size: Words.
        scale_factor: Patches become one token by this number squared.
        epsilon: Of norms.
        self_attention_every: Every this many layers the expert's tokens attend to each other, too.
        image_size: Height and width that images are brought to; None takes them as they are.
        action_dim: Width of padded actions (``D``).
        horizon: Actions that are predicted (``H``).
        state_dim: Width of padded states.
        vlm_folder: Configuration and tokenizer of the vision-language model.
    """

    language: StackShape
    expert: StackShape
    vision: Any
    vocab_size: int
    scale_factor: int
    epsilon: float
    self_attention_every: int
    image_size: tuple[int, int] | None
    action_dim: int
    horizon: int
    state_dim: int
    vlm_folder: Path

    def attends_to_itself(self, index: int) -> bool:
        """Return whether the expert's layer of this number also sees the expert's own tokens."""
        return self.self_attention_every > 0 and index % self.self_attention_every == 0

    @classmethod
    def of_config(cls, config: Mapping[str, Any], vlm_folder: Path) -> SmolVLAShape:
        """Read a configuration of LeRobot.

        Args:
            config: The policy's ``config.json``.
            vlm_folder: Of the vision-language model.

        Raises:
            KeyError: A key is missing.
            OSError: The vision-language model has no configuration.
            ValueError: The policy is of a kind that was not published.
        """
        _require_published(config)
        vlm = require("transformers", needed_by="model_type=smolvla").SmolVLMConfig.from_pretrained(vlm_folder)
        text = vlm.text_config
        depth = config["num_vlm_layers"] if config["num_vlm_layers"] > 0 else text.num_hidden_layers
        heads = {
            "depth": depth,
            "num_heads": text.num_attention_heads,
            "num_kv_heads": text.num_key_value_heads,
            "head_dim": getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads,
        }
        width = int(text.hidden_size * config["expert_width_multiplier"])
        resized = config["resize_imgs_with_padding"]
        return cls(
            language=StackShape(width=text.hidden_size, mlp_dim=text.intermediate_size, **heads),
            expert=StackShape(width=width, mlp_dim=_hidden_width(width), **heads),
            vision=vlm.vision_config,
            vocab_size=text.vocab_size,
            scale_factor=vlm.scale_factor,
            epsilon=text.rms_norm_eps,
            self_attention_every=config["self_attn_every_n_layers"],
            image_size=None if resized is None else (resized[1], resized[0]),
            action_dim=config["max_action_dim"],
            horizon=config.get("chunk_size", 50),
            state_dim=config["max_state_dim"],
            vlm_folder=vlm_folder,
        )


class CrossAttention(Attention):
    """Attention to what another stack's layer has as keys and values, which are projected once more."""

    def forward(
        self, x: torch.Tensor, *, mask: torch.Tensor, positions: torch.Tensor, before: KeysValues | None
    ) -> tuple[torch.Tensor, KeysValues]:
        """See ``Layer``; positions count from the first token of ``x``."""
        assert before is not None
        cos, sin = rotary(positions - positions.amin(1, keepdim=True), self.head_dim)
        query = rotated(self.heads(self.q_proj(x)), cos, sin)
        keys, values = (other.transpose(1, 2).flatten(2) for other in before)
        seen = (self.heads(self.k_proj(keys)), self.heads(self.v_proj(values)))
        return self.mix(query, seen, mask[..., : keys.shape[1]]), before


class UngatedNorm(nn.RMSNorm):
    """Root-mean-square norm of layers whose residuals have no gate."""

    def forward(self, x: torch.Tensor, condition: torch.Tensor | None = None) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        """Return the normalised [N, T, W], and that the residual has no gate."""
        return super().forward(x), None


class SmolVLMWithExpert(nn.Module):
    """SmolVLM2 and the expert.

    Args:
        shape: The model's sizes.
    """

    def __init__(self, shape: SmolVLAShape) -> None:
        super().__init__()
        smolvlm = require("transformers.models.smolvlm.modeling_smolvlm", needed_by="model_type=smolvla")
        language, expert = shape.language, shape.expert
        shape.vision._attn_implementation = "sdpa"
        joined = SimpleNamespace(
            vision_config=shape.vision,
            text_config=SimpleNamespace(hidden_size=language.width),
            scale_factor=shape.scale_factor,
        )
        parts = {
            "vision_model": smolvlm.SmolVLMVisionTransformer(shape.vision),
            "connector": smolvlm.SmolVLMConnector(joined),
            "text_model": LayerStack(
                [self._layer(shape, language, Attention(language)) for _ in range(language.depth)],
                UngatedNorm(language.width, eps=shape.epsilon),
                nn.Embedding(shape.vocab_size, language.width),
            ),
        }
        across = language.num_kv_heads * language.head_dim
        looks = [
            Attention(expert) if shape.attends_to_itself(index) else CrossAttention(expert, source_width=across)
            for index in range(expert.depth)
        ]
        self.vlm = nn.ModuleDict({"model": nn.ModuleDict(parts)})
        self.lm_expert = LayerStack(
            [self._layer(shape, expert, look) for look in looks], UngatedNorm(expert.width, eps=shape.epsilon)
        )
        self.image_size = shape.image_size

    @staticmethod
    def _layer(shape: SmolVLAShape, stack: StackShape, attention: nn.Module) -> Layer:
        return Layer(
            stack, attention=attention, norm=lambda width: UngatedNorm(width, eps=shape.epsilon), activation=F.silu
        )

    @property
    def parts(self) -> Mapping[str, Any]:
        """Vision tower, connector and language model, by their published names."""
        parts = self.vlm["model"]
        assert isinstance(parts, nn.ModuleDict)
        return dict(parts.items())

    def prefix(
        self, images: Sequence[torch.Tensor], tokens: torch.Tensor, there: torch.Tensor, state: torch.Tensor
    ) -> Prefix:
        """Return what the expert attends to.

        Args:
            images: ``I`` images, uint8 [N, H, W, 3].
            tokens: int [N, L] of the prompt.
            there: bool [N, I + L]; false for images that are missing, and for padding.
            state: [N, W], embedded; it sees everything and is seen by the expert alone.
        """
        vision, connector, language = (self.parts[name] for name in ("vision_model", "connector", "text_model"))
        scale, dtype = math.sqrt(state.shape[-1]), vision.embeddings.patch_embedding.weight.dtype
        pixels = [self._pixels(image).to(dtype) for image in images]
        embedded = [connector(vision(pixel_values=each).last_hidden_state) * scale for each in pixels]
        words = language.embed_tokens(tokens.long()) * scale
        sequence = torch.cat([*embedded, words, state.to(words.dtype).unsqueeze(1)], 1)
        seen = there[:, : len(images)].repeat_interleave(embedded[0].shape[1], 1)
        mask = torch.cat([seen, there[:, len(images) :], there.new_ones(len(there), 1)], 1)
        visible = mask[:, None, None, :].repeat(1, 1, mask.shape[1], 1)
        visible[:, :, :-1, -1] = False
        output, kept = language(sequence, mask=visible, positions=mask.cumsum(1) - 1)
        return Prefix(kept, mask, output)

    def _pixels(self, image: torch.Tensor) -> torch.Tensor:
        """Return float32 [N, 3, S, S] from -1 to 1: resized without distortion, black on the left and at the top."""
        unit = image.permute(0, 3, 1, 2).float() / 255.0
        if self.image_size is not None and unit.shape[-2:] != self.image_size:
            ratio = max(extent / side for extent, side in zip(unit.shape[-2:], self.image_size, strict=True))
            inner = [int(extent / ratio) for extent in unit.shape[-2:]]
            unit = F.interpolate(unit, size=inner, mode="bilinear", align_corners=False)
            unit = F.pad(unit, (self.image_size[1] - inner[1], 0, self.image_size[0] - inner[0], 0))
        return unit * 2.0 - 1.0


def _require_published(config: Mapping[str, Any]) -> None:
    """Refuse variants that the published code knows and no published policy is of."""
    if config.get("type", "smolvla") != "smolvla":
        raise ValueError(f"type {config['type']}")
    if config.get("attention_mode", "cross_attn") != "cross_attn":
        raise ValueError(f"attention_mode {config['attention_mode']}; cross_attn alone is supported")
    if config.get("num_expert_layers", -1) not in {-1, 0, config["num_vlm_layers"]}:
        raise ValueError(f"num_expert_layers {config['num_expert_layers']}; the language model's number is needed")
    if config.get("add_image_special_tokens", False):
        raise ValueError("add_image_special_tokens true; prompts with tokens around images are not supported")


def _hidden_width(width: int) -> int:
    return math.ceil(4 * int(2 * width / 3) / _MULTIPLE) * _MULTIPLE
