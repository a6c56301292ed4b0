"""``smolvla``: SmolVLA, a flow from noise to chunks of actions given images, a sentence and a state."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from rlinf.config.schema.vla import SmolVLAConfig
from rlinf.models.base_policy import BasePolicy
from rlinf.models.language.model_path import TOKENIZER_FILES, find_model_folder
from rlinf.models.lora import adapt_policy
from rlinf.models.vla.flow_inputs import FlowInputs
from rlinf.models.vla.flow_vla import (
    FlowVLAPolicy,
    Prefix,
    freeze,
    read_shape,
    suffix_mask,
    time_embedding,
)
from rlinf.models.vla.small_policies import finish_flow
from rlinf.models.vla.smolvla_model import SmolVLAShape, SmolVLMWithExpert

_PREFIX = "model."
"""What published files have in front of names."""
UNUSED = ("vlm_with_expert.vlm.lm_head.weight",)


class SmolVLAInputs(FlowInputs):
    """What SmolVLA sees: images as cameras give them, and a sentence that ends its line."""

    def image(self, image: torch.Tensor, *, is_cropped: bool) -> torch.Tensor:
        """See ``FlowInputs``; the model resizes."""
        del is_cropped
        return image

    def tokens(self, task: str, state: torch.Tensor) -> list[int]:
        """See ``FlowInputs``."""
        found: list[int] = self._tokenizer(task if task.endswith("\n") else f"{task}\n").input_ids
        return found


class SmolVLAPolicy(FlowVLAPolicy):
    """SmolVLA: the state ends what is seen; the expert's actions attend to earlier ones alone.

    Args:
        cfg: The model's keys.
        shape: Sizes of the published model.
        inputs: Makes records of observations.
        num_values: Values per observation (``V``).
    """

    def __init__(self, cfg: SmolVLAConfig, shape: SmolVLAShape, inputs: FlowInputs, *, num_values: int = 1) -> None:
        width, padded = shape.expert.width, shape.action_dim
        super().__init__(
            cfg,
            inputs,
            horizon=cfg.horizon or shape.horizon,
            padded_dim=padded,
            width=shape.language.width,
            expert_width=width,
            num_values=num_values,
        )
        self.vlm_with_expert = SmolVLMWithExpert(shape)
        self.state_proj = nn.Linear(shape.state_dim, shape.language.width)
        self.action_in_proj = nn.Linear(padded, width)
        self.action_out_proj = nn.Linear(width, padded)
        self.action_time_mlp_in, self.action_time_mlp_out = nn.Linear(2 * width, width), nn.Linear(width, width)

    def prefix(self, record: dict[str, torch.Tensor]) -> Prefix:
        """See ``FlowVLAPolicy``."""
        images = [record[f"images.{key}"] for key in self.cfg.image_keys]
        mask = record["token_mask"]
        there = record.get("image_mask", mask.new_ones(len(mask), len(images)))
        state = self.state_proj(record["state"].to(self.state_proj.weight.dtype))
        return self.vlm_with_expert.prefix(images, record["token_ids"], torch.cat([there, mask], 1), state)

    def velocity_of(self, output: torch.Tensor) -> torch.Tensor:
        """See ``FlowVLAPolicy``."""
        velocity: torch.Tensor = self.action_out_proj(output.to(self.action_out_proj.weight.dtype))
        return velocity.float()

    def expert_output(self, prefix: Prefix, state: torch.Tensor, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """See ``FlowVLAPolicy``; the prefix holds the state."""
        num_points, horizon = x.shape[1:3]
        embedded = self.action_in_proj(x.to(self.action_in_proj.weight.dtype))
        moments = time_embedding(time, embedded.shape[-1]).to(embedded.dtype).unsqueeze(-2).expand_as(embedded)
        embedded = self.action_time_mlp_out(F.silu(self.action_time_mlp_in(torch.cat([embedded, moments], -1))))
        first = prefix.there.sum(1)[:, None, None]
        positions = (first + torch.arange(horizon, device=x.device)).expand(-1, num_points, -1).flatten(1, 2)
        earlier = torch.ones(horizon, horizon, dtype=torch.bool, device=x.device).tril()
        output, _ = self.vlm_with_expert.lm_expert(
            embedded.flatten(1, 2),
            mask=suffix_mask(prefix.there, num_points, earlier),
            positions=positions,
            before=prefix.keys_values,
        )
        of_actions: torch.Tensor = output.view(*embedded.shape)
        return of_actions

    @property
    def word_embeddings(self) -> nn.Module:
        """See ``FlowVLAPolicy``."""
        words: nn.Module = self.vlm_with_expert.parts["text_model"].embed_tokens
        return words

    def recompute_units(self) -> list[nn.Module]:
        """See ``TrainableModel``."""
        model = self.vlm_with_expert
        tower = model.parts["vision_model"].encoder.layers
        expert: Any = model.lm_expert.layers
        return [*tower, *model.parts["text_model"].layers, *expert]


def build_smolvla(cfg: SmolVLAConfig, *, num_values: int = 1) -> BasePolicy:
    """Build what ``model_type: smolvla`` names, on device ``meta``; ``weight_source`` is ``model_path``.

    Args:
        cfg: The ``actor.model`` section.
        num_values: Values per observation (``V``).

    Raises:
        ConfigError: A folder does not exist, or is not of this model.
        MissingPackageError: transformers is not installed.
    """
    folder, shape = read_shape(cfg, lambda folder, config: _read_shape(cfg, folder, config), "LeRobot")
    inputs = SmolVLAInputs(cfg, folder, tokenizer_folder=shape.vlm_folder, padded_dim=shape.state_dim)
    with torch.device("meta"):
        policy = SmolVLAPolicy(cfg, shape, inputs, num_values=num_values)
        model = policy.vlm_with_expert
        adapt_policy(policy, model, cfg)
    parts = model.parts
    freeze(
        {"vision": parts["vision_model"], "projector": parts["connector"], "language": parts["text_model"]}, cfg.freeze
    )
    return finish_flow(policy, folder, unused=UNUSED, prefix=_PREFIX)


def _read_shape(cfg: SmolVLAConfig, folder: Path, config: Mapping[str, Any]) -> SmolVLAShape:
    name = cfg.vlm_path or config["vlm_model_name"]
    inside = folder / name
    vlm = inside if inside.is_dir() else find_model_folder(name, key="actor.model.vlm_path", files=TOKENIZER_FILES)
    return SmolVLAShape.of_config(config, vlm)
