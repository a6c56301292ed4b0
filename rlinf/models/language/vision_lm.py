"""``vision_lm``: language models that read images, of the families Qwen2.5-VL and Qwen3-VL, as training needs them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from rlinf.config.schema.model import CausalLMConfig, VisionLMConfig
from rlinf.data.packing import PackedSequences
from rlinf.data.prompt_images import ImageProcessor
from rlinf.errors import AlgorithmError, ConfigError
from rlinf.models.language.causal_lm import CausalLM, InitialWeights
from rlinf.models.language.expert_routing import ExpertRouting
from rlinf.models.language.model_path import find_model_folder, require_model_path
from rlinf.models.language.packed_attention import NAME, packed_attention
from rlinf.models.language.pretrained import PretrainedWeights, build_on_meta
from rlinf.models.language.token_plan import TokenPlan, plan_tokens
from rlinf.models.language.vision_inputs import ImageInputs
from rlinf.utils.optional import require

FAMILIES = ("qwen2_5_vl", "qwen3_vl")
"""As ``model_type`` of a checkpoint's ``config.json``."""


class VisionLM(CausalLM):
    """A ``CausalLM`` with a vision tower: sequences of a pack that have images see them at their placeholders.

    Each different image of a pack is computed once. The tower runs in every pass, on a blank image if need be, so that
    ranks without images take part in the collectives of sharding.

    Args:
        cfg: The ``actor.model`` section.
        pretrained: A transformers model; taken over.
        processor: Cuts images into patches.

    Raises:
        ConfigError: The model computes what training here would leave out.
    """

    def __init__(self, cfg: VisionLMConfig, pretrained: Any, processor: ImageProcessor) -> None:
        super().__init__(cfg, pretrained)
        self.hf_config = pretrained.config.get_text_config()
        self._processor = processor
        if cfg.freeze_vision:
            self._decoder.visual.requires_grad_(False)

    @property
    def num_layer_parameters(self) -> int:
        """See ``LanguageModel``: without the vision tower."""
        return sum(parameter.numel() for parameter in self._decoder.language_model.layers.parameters())

    @property
    def can_share_prompts(self) -> bool:
        """See ``LanguageModel``: the attention is always the one that knows of sharing."""
        return True

    def recompute_units(self) -> list[nn.Module]:
        """See ``TrainableModel``: the layers of the language model, and of a vision tower that learns."""
        units = super().recompute_units()
        frozen = set(self._decoder.visual.modules()) if self._is_frozen else set()
        return [unit for unit in units if unit not in frozen]

    def shard_units(self) -> list[nn.Module]:
        """See ``TrainableModel``."""
        ends = [] if self.is_tied else [self._decoder.get_input_embeddings(), getattr(self, self.head_name)]
        return [*super().recompute_units(), *ends]

    @property
    def _is_frozen(self) -> bool:
        return isinstance(self.cfg, VisionLMConfig) and self.cfg.freeze_vision

    def _hidden_states(self, packed: PackedSequences, routing: ExpertRouting | None) -> tuple[TokenPlan, torch.Tensor]:
        """Return which tokens the rank has, and their last hidden states [T, H]."""
        if self.context is not None or routing is not None:
            raise AlgorithmError(
                "model_type=vision_lm: the tokens of a pack cannot be split over ranks, nor routed to experts. Set "
                "actor.fsdp_config.context_parallel_size=1."
            )
        plan = plan_tokens(packed, context=None, hidden_size=self.hf_config.hidden_size)
        device = packed.token_ids.device
        rows, positions, inputs = self._lay_out(packed)
        arguments = inputs.embed(self._decoder, plan.token_ids.unsqueeze(0), rows.unsqueeze(0).to(device))
        output = self._decoder.language_model(
            position_ids=positions.unsqueeze(1).to(device), use_cache=False, plan=plan, **arguments
        )
        hidden: torch.Tensor = output.last_hidden_state
        return plan, hidden.squeeze(0)

    def _lay_out(self, packed: PackedSequences) -> tuple[torch.Tensor, torch.Tensor, ImageInputs]:
        """Return rows [T] and positions [3, T] of a pack's tokens, on the host, and its images."""
        token_ids = packed.token_ids.cpu()
        parts = torch.split(packed.places, list(packed.lengths))
        images = packed.images or ((),) * packed.num_sequences
        inputs = ImageInputs.of([token_ids[where] for where in parts], images, self._processor)
        rows = torch.full((packed.num_tokens,), -1, dtype=torch.int64)
        positions = torch.zeros(3, packed.num_tokens, dtype=torch.int64)
        for where, found in zip(parts, inputs.sequences, strict=True):
            # What sequences share is the same in all of them: they share only behind the same images.
            rows[where], positions[:, where] = found.rows, found.positions
        return rows, positions, inputs


def build_vision_lm(cfg: VisionLMConfig, *, num_values: int = 1) -> VisionLM:
    """Build what ``model_type: vision_lm`` names, in float32 on device ``meta``; ``weight_source`` is ``model_path``.

    Args:
        cfg: The ``actor.model`` section.
        num_values: Not used: every token has one value.

    Raises:
        ConfigError: There is no such model, or one of another family.
        MissingPackageError: transformers is not installed.
    """
    del num_values
    transformers = require("transformers", needed_by="model_type=vision_lm")
    transformers.AttentionInterface.register(NAME, packed_attention)
    require_model_path(cfg.model_path)
    require_family(cfg)
    # The tower attends within images and in both directions: that is not what a pack's plan says.
    attention = {"": "sdpa", "text_config": NAME, "vision_config": "sdpa"}
    pretrained = build_on_meta(cfg, attention, loader="AutoModelForImageTextToText")
    weights = PretrainedWeights(cfg, pretrained)
    processor = ImageProcessor(str(find_model_folder(cfg.model_path)))
    with torch.device("meta"):
        model = VisionLM(cfg, pretrained, processor)
    model.weight_source = InitialWeights(model, weights)
    return model


def require_family(cfg: CausalLMConfig) -> None:
    """Refuse checkpoints whose placeholders and positions are computed in another way.

    Raises:
        ConfigError: The checkpoint is of another family.
    """
    transformers = require("transformers", needed_by="model_type=vision_lm")
    try:
        family = transformers.AutoConfig.from_pretrained(find_model_folder(cfg.model_path)).model_type
    except (OSError, ValueError) as error:
        raise ConfigError(f"actor.model.model_path: transformers cannot load '{cfg.model_path}': {error}") from error
    if family not in FAMILIES:
        raise ConfigError(
            f"actor.model.model_path: '{cfg.model_path}' is a {family}; model_type=vision_lm takes "
            f"{', '.join(FAMILIES)}. Choose one of these, or model_type=causal_lm for a model without images."
        )
