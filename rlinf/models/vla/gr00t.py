"""``gr00t``: GR00T N1.5, a flow from noise to chunks of actions given images, a sentence and a state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from rlinf.config.schema.vla import GR00T_EMBODIMENTS, Gr00tConfig
from rlinf.errors import ConfigError
from rlinf.models.base_policy import BasePolicy
from rlinf.models.language.model_path import TOKENIZER_FILES, find_model_folder
from rlinf.models.language.pretrained import compute_buffers
from rlinf.models.lora import adapt_policy
from rlinf.models.vla.flow_inputs import FlowInputs
from rlinf.models.vla.flow_vla import FlowVLAPolicy, Prefix, freeze, read_shape
from rlinf.models.vla.gr00t_model import ActionHead, Eagle, Gr00tShape
from rlinf.models.vla.small_policies import finish_flow

_EAGLE = "lerobot/eagle2hg-processor-groot-n1p5"
"""Name on the Hub of Eagle's configuration and tokenizer, which published folders lack."""
_LANGUAGE = "backbone.eagle_model.language_model"
_TIED = {f"{_LANGUAGE}.model.embed_tokens.weight": f"{_LANGUAGE}.lm_head.weight"}
_POOLING = "backbone.eagle_model.vision_model.vision_model.head"
UNUSED = (
    f"{_LANGUAGE}.lm_head.weight",
    f"{_POOLING}.probe",
    *(
        f"{_POOLING}.attention.{name}"
        for name in ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
    ),
    *(f"{_POOLING}.{name}.{kind}" for name in ("layernorm", "mlp.fc1", "mlp.fc2") for kind in ("weight", "bias")),
)
"""What published files hold and policies do not need."""
_ROUNDING = 1e-3
"""Part of a bucket by which rounding may have missed its edge."""
_NOISE_LIMIT = 0.999
"""Draws of a Beta distribution are divided by this number (``noise_s``), so that some are noise alone."""
_TIME_CONCENTRATION = 1.5


@dataclass(frozen=True, slots=True)
class Gr00tPrefix(Prefix):
    """What the head attends to.

    Attributes:
        state: [N, token_width]; the embedded state.
    """

    state: torch.Tensor

    def mean(self) -> torch.Tensor:
        """Return the mean output over what is there, and the embedded state."""
        return torch.cat([Prefix.mean(self), self.state], -1)


class Gr00tInputs(FlowInputs):
    """What GR00T sees: the middle of each image, in the model's size, and a conversation of images and a sentence.

    Args:
        cfg: The ``actor.model`` section.
        folder: Of the checkpoint.
        eagle: Of Eagle's tokenizer.
        shape: The model's sizes.
    """

    cfg: Gr00tConfig

    def __init__(self, cfg: Gr00tConfig, folder: Path, *, eagle: Path, shape: Gr00tShape) -> None:
        named = replace(cfg, unnorm_key=cfg.unnorm_key or cfg.embodiment_tag)
        super().__init__(named, folder, tokenizer_folder=eagle, padded_dim=shape.state_dim)
        self.image_size: int = shape.vision.image_size
        patches = self._tokenizer.convert_ids_to_tokens(shape.image_token) * shape.num_patches
        images = "".join(f"<image {index + 1}><img>{patches}</img>" for index in range(len(cfg.image_keys)))
        self._before = f"<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n{images}"

    def image(self, image: torch.Tensor, *, is_cropped: bool) -> torch.Tensor:
        """See ``FlowInputs``; rounded down, as the published code does."""
        unit = image.permute(0, 3, 1, 2).float() / 255.0
        scale = 1.0 if is_cropped else self.cfg.crop_scale
        height, width = (int(extent * scale) for extent in unit.shape[-2:])
        top, left = round((unit.shape[-2] - height) / 2.0), round((unit.shape[-1] - width) / 2.0)
        middle = unit[..., top : top + height, left : left + width]
        size = (self.image_size, self.image_size)
        if middle.shape[-2:] != size:
            middle = F.interpolate(middle, size=size, mode="bilinear", align_corners=False, antialias=True)
        return (middle * 255.0).to(torch.uint8).permute(0, 2, 3, 1)

    def tokens(self, task: str, state: torch.Tensor) -> list[int]:
        """See ``FlowInputs``."""
        text = f"{self._before}{task}<|im_end|>\n<|im_start|>assistant\n"
        found: list[int] = self._tokenizer(text, add_special_tokens=False).input_ids
        return found


class Gr00tPolicy(FlowVLAPolicy):
    """GR00T N1.5, whose padding is invisible: published code at a batch of one computes the same.

    Args:
        cfg: The model's keys.
        shape: Sizes of the published model.
        inputs: Makes records of observations.
        num_values: Values per observation (``V``).
    """

    cfg: Gr00tConfig

    def __init__(self, cfg: Gr00tConfig, shape: Gr00tShape, inputs: Gr00tInputs, *, num_values: int = 1) -> None:
        super().__init__(
            cfg,
            inputs,
            horizon=cfg.horizon or shape.horizon,
            padded_dim=shape.action_dim,
            width=shape.seen_width + shape.token_width,
            expert_width=shape.diffusion.output_dim,
            num_values=num_values,
            output_width=shape.seen_width,
        )
        self.embodiment = GR00T_EMBODIMENTS[cfg.embodiment_tag] if cfg.embodiment_id is None else cfg.embodiment_id
        self.backbone, self.action_head = Eagle(shape), ActionHead(shape)

    def prefix(self, record: dict[str, torch.Tensor]) -> Gr00tPrefix:
        """See ``FlowVLAPolicy``."""
        images, there = [record[f"images.{key}"] for key in self.cfg.image_keys], record["token_mask"]
        head = self.action_head
        seen = head.vl_self_attention(head.vlln(self.backbone(images, record["token_ids"])), there)
        state = head.state_encoder(record["state"].to(seen.dtype), self.embodiment)
        return Gr00tPrefix(keys_values=[], there=there, output=seen, state=state)

    def velocity_of(self, output: torch.Tensor) -> torch.Tensor:
        """See ``FlowVLAPolicy``; the model's own runs from noise to actions."""
        velocity: torch.Tensor = self.action_head.action_decoder(output, self.embodiment)
        return -velocity.float()

    def expert_output(self, prefix: Prefix, state: torch.Tensor, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """See ``FlowVLAPolicy``; the prefix holds the state, and this model's own time runs from 0, noise, to 1."""
        assert isinstance(prefix, Gr00tPrefix)
        own = (1.0 - time.double()) * self.action_head.num_buckets
        bucket = (own + _ROUNDING).long().expand(x.shape[:2])
        return self.action_head.output(
            x.to(prefix.output.dtype),
            bucket=bucket,
            state=prefix.state,
            seen=prefix.output,
            there=prefix.there,
            embodiment=self.embodiment,
        )

    def supervised_draws(self, count: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
        """See ``FlowVLAPolicy``; a part of the times is noise alone."""
        share = torch.rand(count, generator=generator).pow(1.0 / _TIME_CONCENTRATION)
        noise = torch.randn(count, self.horizon, self.padded_dim, generator=generator)
        return {"noise": noise, "time": share / _NOISE_LIMIT}

    @property
    def word_embeddings(self) -> nn.Module:
        """See ``FlowVLAPolicy``."""
        words: nn.Module = self.backbone.parts.language.embed_tokens
        return words

    def recompute_units(self) -> list[nn.Module]:
        """See ``TrainableModel``."""
        parts, head = self.backbone.parts, self.action_head
        seeing = [*parts.vision.encoder.layers, *parts.language.layers]
        return [*seeing, *head.vl_self_attention.transformer_blocks, *head.model.transformer_blocks]


def build_gr00t(cfg: Gr00tConfig, *, num_values: int = 1) -> BasePolicy:
    """Build what ``model_type: gr00t`` names, on device ``meta``; ``weight_source`` is ``model_path``.

    Args:
        cfg: The ``actor.model`` section.
        num_values: Values per observation (``V``).

    Raises:
        ConfigError: A folder does not exist, or is not of this model; or the embodiment is not known.
        MissingPackageError: transformers is not installed.
    """
    eagle = Path()

    def read(folder: Path, config: Mapping[str, Any]) -> Gr00tShape:
        nonlocal eagle
        eagle = _eagle_folder(cfg, folder)
        return Gr00tShape.of_config(config, json.loads((eagle / "config.json").read_text(encoding="utf-8")))

    folder, shape = read_shape(cfg, read, "GR00T N1.5")
    _require_embodiment(cfg, shape)
    inputs = Gr00tInputs(cfg, folder, eagle=eagle, shape=shape)
    with torch.device("meta"):
        policy = Gr00tPolicy(cfg, shape, inputs, num_values=num_values)
        adapt_policy(policy, nn.ModuleList([policy.backbone, policy.action_head.model]), cfg)
    parts = policy.backbone.parts
    compute_buffers(parts.language, cfg.model_path)
    policy.backbone.compute_buffers()
    freeze({"vision": parts.vision, "projector": parts.projector, "language": parts.language}, cfg.freeze)
    return finish_flow(policy, folder, tied=_TIED, unused=UNUSED)


def _eagle_folder(cfg: Gr00tConfig, folder: Path) -> Path:
    inside = folder / "eagle"
    if cfg.eagle_path is None and inside.is_dir():
        return inside
    return find_model_folder(cfg.eagle_path or _EAGLE, key="actor.model.eagle_path", files=TOKENIZER_FILES)


def _require_embodiment(cfg: Gr00tConfig, shape: Gr00tShape) -> None:
    if cfg.embodiment_id is None and cfg.embodiment_tag not in GR00T_EMBODIMENTS:
        raise ConfigError(
            f"actor.model.embodiment_tag: received {cfg.embodiment_tag}; those with a known number are "
            f"{', '.join(sorted(GR00T_EMBODIMENTS))}. Choose one of them, or give its number as "
            "actor.model.embodiment_id."
        )
    if cfg.embodiment_id is not None and cfg.embodiment_id >= shape.num_embodiments:
        raise ConfigError(
            f"actor.model.embodiment_id: received {cfg.embodiment_id}; the model has encoders of "
            f"{shape.num_embodiments} robots. Choose a number below."
        )
