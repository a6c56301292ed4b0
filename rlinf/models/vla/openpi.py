"""``openpi``: pi-0 and pi-0.5, flows from noise to chunks of actions given images, a sentence and a state."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from rlinf.config.schema.vla import PiConfig
from rlinf.errors import ConfigError
from rlinf.models.base_policy import BasePolicy
from rlinf.models.lora import adapt_policy
from rlinf.models.vla.flow_inputs import PiInputs
from rlinf.models.vla.flow_vla import (
    FlowVLAPolicy,
    Prefix,
    freeze,
    read_shape,
    suffix_mask,
    time_embedding,
)
from rlinf.models.vla.pi_model import PaliGemmaWithExpert, PiShape
from rlinf.models.vla.small_policies import finish_flow

_PALIGEMMA = "paligemma_with_expert.paligemma"
_TIED = {f"{_PALIGEMMA}.model.language_model.embed_tokens.weight": f"{_PALIGEMMA}.lm_head.weight"}
_LEROBOT_PREFIX = "model."
"""What LeRobot's files have in front of names."""
UNUSED = (f"{_PALIGEMMA}.lm_head.weight", "paligemma_with_expert.gemma_expert.lm_head.weight")


class PiPolicy(FlowVLAPolicy):
    """Pi-0, whose expert reads the state as a token, or pi-0.5, which reads it as words.

    Args:
        cfg: The model's keys.
        shape: Sizes of the published model.
        inputs: Makes records of observations.
        num_values: Values per observation (``V``).
    """

    cfg: PiConfig

    def __init__(self, cfg: PiConfig, shape: PiShape, inputs: PiInputs, *, num_values: int = 1) -> None:
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
        self.paligemma_with_expert = PaliGemmaWithExpert(shape, is_adaptive=self.is_adaptive)
        self.action_in_proj = nn.Linear(padded, width)
        self.action_out_proj = nn.Linear(width, padded)
        if self.is_adaptive:
            self.time_mlp_in, self.time_mlp_out = nn.Linear(width, width), nn.Linear(width, width)
        else:
            self.state_proj = nn.Linear(padded, width)
            self.action_time_mlp_in, self.action_time_mlp_out = nn.Linear(2 * width, width), nn.Linear(width, width)

    @property
    def is_adaptive(self) -> bool:
        """Whether time modulates the expert's norms, and the state is among the words."""
        return self.cfg.variant == "pi05"

    def prefix(self, record: dict[str, torch.Tensor]) -> Prefix:
        """See ``FlowVLAPolicy``."""
        images = [record[f"images.{key}"] for key in self.cfg.image_keys]
        mask = record["token_mask"]
        there = record.get("image_mask", mask.new_ones(len(mask), len(images)))
        return self.paligemma_with_expert.prefix(images, record["token_ids"], torch.cat([there, mask], 1))

    def velocity_of(self, output: torch.Tensor) -> torch.Tensor:
        """See ``FlowVLAPolicy``."""
        velocity: torch.Tensor = self.action_out_proj(output.to(self.action_out_proj.weight.dtype))
        return velocity.float()

    def expert_output(self, prefix: Prefix, state: torch.Tensor, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """See ``FlowVLAPolicy``."""
        num_points, horizon = x.shape[1:3]
        embedded = self.action_in_proj(x.to(self.action_in_proj.weight.dtype))
        moments = time_embedding(time, embedded.shape[-1]).to(embedded.dtype).unsqueeze(-2).expand_as(embedded)
        condition = None
        if self.is_adaptive:
            condition = F.silu(self.time_mlp_out(F.silu(self.time_mlp_in(moments)))).flatten(1, 2)
        else:
            both = torch.cat([embedded, moments], -1)
            embedded = self.action_time_mlp_out(F.silu(self.action_time_mlp_in(both)))
            token = self.state_proj(state.to(embedded.dtype))[:, None, None].expand(-1, num_points, -1, -1)
            embedded = torch.cat([token, embedded], 2)
        block = embedded.shape[2]
        first = prefix.there.sum(1)[:, None, None]
        positions = (first + torch.arange(block, device=x.device)).expand(-1, num_points, -1).flatten(1, 2)
        own = torch.ones(block, block, dtype=torch.bool, device=x.device)
        if not self.is_adaptive:
            # The state, the first token of a block, does not see actions.
            own[0, 1:] = False
        output, _ = self.paligemma_with_expert.expert(
            embedded.flatten(1, 2),
            mask=suffix_mask(prefix.there, num_points, own),
            positions=positions,
            before=prefix.keys_values,
            condition=condition,
        )
        of_actions: torch.Tensor = output.view(*embedded.shape)[:, :, -horizon:]
        return of_actions

    @property
    def word_embeddings(self) -> nn.Module:
        """See ``FlowVLAPolicy``."""
        words: nn.Module = self.paligemma_with_expert.parts["language_model"].embed_tokens
        return words

    def recompute_units(self) -> list[nn.Module]:
        """See ``TrainableModel``."""
        model = self.paligemma_with_expert
        tower = model.parts["vision_tower"]["vision_model"].encoder.layers
        return [*tower, *model.parts["language_model"].layers, *model.expert.layers]


def build_openpi(cfg: PiConfig, *, num_values: int = 1) -> BasePolicy:
    """Build what ``model_type: openpi`` names, on device ``meta``; ``weight_source`` is ``model_path``.

    Args:
        cfg: The ``actor.model`` section.
        num_values: Values per observation (``V``).

    Raises:
        ConfigError: The folder does not exist, or is not of this model or ``variant``.
        MissingPackageError: transformers is not installed.
    """
    folder, shape = read_shape(
        cfg, lambda _, config: PiShape.of_config(config), "openpi's conversion to PyTorch or LeRobot", may_lack=True
    )
    if shape.lerobot_type not in (None, cfg.variant):
        raise ConfigError(
            f"actor.model.variant: received {cfg.variant}; '{folder}' holds LeRobot's {shape.lerobot_type}. Set it to "
            "what the folder holds, or give another actor.model.model_path."
        )
    inputs = PiInputs(
        cfg,
        folder,
        image_size=shape.vision["image_size"],
        padded_dim=shape.action_dim,
        pads_words=shape.lerobot_type is not None,
    )
    with torch.device("meta"):
        policy = PiPolicy(cfg, shape, inputs, num_values=num_values)
        model: Any = policy.paligemma_with_expert
        adapt_policy(policy, model, cfg)
    model.compute_buffers()
    freeze(
        {
            "vision": model.parts["vision_tower"],
            "projector": model.parts["multi_modal_projector"],
            "language": model.parts["language_model"],
        },
        cfg.freeze,
    )
    prefix = _LEROBOT_PREFIX if shape.lerobot_type else ""
    return finish_flow(policy, folder, tied=_TIED, unused=UNUSED, prefix=prefix)
