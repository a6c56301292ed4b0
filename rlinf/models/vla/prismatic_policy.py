"""What policies on Prismatic models share: observations to records, records to word embeddings, and values."""

from __future__ import annotations

import abc
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rlinf.config.schema.vla import OpenVLAConfig, OpenVLAOFTConfig
from rlinf.data.messages.embodied import Observation
from rlinf.errors import ConfigError
from rlinf.models.base_policy import BasePolicy
from rlinf.models.control.heads import run_head
from rlinf.models.language.model_path import find_model_folder, require_model_path
from rlinf.models.language.pretrained import compute_buffers
from rlinf.models.lora import add_adapters, merged
from rlinf.models.trainable import WeightForm
from rlinf.models.vla.action_prompts import OpenVLAPrompts
from rlinf.models.vla.action_tokens import ActionTokens
from rlinf.models.vla.image_resizing import center_crop, resize, through_jpeg
from rlinf.models.vla.norm_statistics import Statistics
from rlinf.models.vla.observed import image_of, states_of, tasks_of
from rlinf.models.vla.prismatic import FiLMBackbone, PrismaticShape, Projector, VisionBackbone
from rlinf.models.vla.published_folder import PublishedWeights, StartingWeights, initial_head
from rlinf.models.vla.value_heads import value_head
from rlinf.utils.optional import require

_FROZEN = {"vision": "vision_backbone", "projector": "projector", "language": "language_model"}


class PrismaticInputs:
    """Turns observations into what trajectories keep: images at the model's size, tokens, normalised states.

    Args:
        cfg: The ``actor.model`` section.
        folder: Of the checkpoint.
        image_size: Side of the model's images in pixels.
    """

    def __init__(self, cfg: OpenVLAConfig, folder: Path, image_size: int) -> None:
        self.cfg, self.image_size = cfg, image_size
        self.prompts = OpenVLAPrompts(folder, cfg.max_prompt_length)
        statistics = Statistics.of_folder(folder, cfg.unnorm_key)
        self.actions = statistics.normalizer("action", cfg.norm_scheme, cfg.action_dim)
        self.states = None
        if isinstance(cfg, OpenVLAOFTConfig) and cfg.use_proprio:
            self.states = statistics.normalizer("proprio", cfg.norm_scheme, cfg.state_dim)

    def record(self, obs: Observation, device: torch.device) -> dict[str, torch.Tensor]:
        """Return ``images.<key>`` uint8 [B, S, S, 3], ``token_ids`` int32 and ``token_mask`` bool [B, L], ``state``.

        Raises:
            EnvironmentFailure: The environment shows no such images, sentences or states.
        """
        record = {f"images.{key}": self._image(obs, key).to(device) for key in self.cfg.image_keys}
        ids, mask = self.prompts.encode(tasks_of(obs))
        record |= {"token_ids": ids.to(device), "token_mask": mask.to(device)}
        if self.states is not None:
            record["state"] = self.states.normalize(states_of(obs, len(self.states)).to(device, torch.float32))
        return record

    def _image(self, obs: Observation, key: str) -> torch.Tensor:
        image = image_of(obs, key)
        if tuple(image.shape[1:3]) != (self.image_size, self.image_size):
            image = through_jpeg(image) if self.cfg.image_jpeg else image
            image = resize(image, self.image_size, self.cfg.image_resize)
        return center_crop(image) if self.cfg.center_crop else image


class PrismaticPolicy(BasePolicy):
    """A Prismatic model that acts; modules have their published names.

    Args:
        cfg: The ``actor.model`` section.
        shape: The model's sizes.
        inputs: Makes its records.
        num_values: Values per observation (``V``).
    """

    def __init__(self, cfg: OpenVLAConfig, shape: PrismaticShape, inputs: PrismaticInputs, *, num_values: int) -> None:
        super().__init__()
        self.cfg, self.inputs = cfg, inputs
        self.tokens = ActionTokens(shape.vocab_size, shape.num_bins)
        self.vision_backbone: VisionBackbone | FiLMBackbone = VisionBackbone(shape)
        self.language_model: Any = _language_model(shape)
        self.word_width: int = self.language_model.config.hidden_size
        is_fused = len(shape.towers) > 1
        self.projector = Projector(self.vision_backbone.embed_dim, self.word_width, is_fused=is_fused)
        self.value_head = None
        if cfg.add_value_head:
            self.value_head = value_head(cfg, self.word_width, num_values)

    @abc.abstractmethod
    def components(self) -> tuple[str, ...]:
        """Return the parts that have files of their own in the published folder."""

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Return word embeddings [N, L, W] of token ids."""
        words: torch.Tensor = self.language_model.model.embed_tokens(ids.long())
        return words

    def see(self, record: dict[str, torch.Tensor], words: torch.Tensor | None = None) -> torch.Tensor:
        """Return the embeddings of all images, [N, I * P, W].

        Args:
            record: See ``PrismaticInputs.record``.
            words: Mean word embedding [N, W], for FiLM.
        """
        images = [record[f"images.{key}"] for key in self.cfg.image_keys]
        features = self.vision_backbone(images) if words is None else self.vision_backbone(images, words)
        seen: torch.Tensor = self.projector(features)
        return seen

    def all_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return logits of bins [..., n], float32, of hidden states [..., W]."""
        return self.tokens.logits_of(self.language_model.lm_head(hidden))

    def values_of(self, hidden: torch.Tensor) -> torch.Tensor | None:
        """Return values [N, V] of the hidden states [N, W] that choose the first number; None without a value head."""
        if self.value_head is None:
            return None
        features = hidden.detach() if self.cfg.value_detach else hidden
        return run_head(self.value_head, features)

    @property
    def num_supervised_actions(self) -> int:
        """See ``BasePolicy``."""
        return self.cfg.num_action_chunks

    def supervised_forward(self, forward_inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """See ``BasePolicy``: cross-entropy of action tokens; of the L1 head, distances."""
        evaluation = self.default_forward(forward_inputs)
        if evaluation.greedy is None:
            return -evaluation.logprobs
        # The standard deviation gets a gradient of 0: optimizers keep, and checkpoints expect, a state of it.
        return (evaluation.greedy - forward_inputs["action"]).abs() + 0.0 * evaluation.logprobs

    def shard_units(self) -> list[nn.Module]:
        """See ``TrainableModel``: layers, blocks of towers, both ends of the language model, the value head."""
        ends = [self.language_model.model.embed_tokens, self.language_model.lm_head]
        return [*self.recompute_units(), *ends, *(() if self.value_head is None else (self.value_head,))]

    def recompute_units(self) -> list[nn.Module]:
        """See ``TrainableModel``."""
        blocks = (tower.blocks[:-1] for tower in self.vision_backbone.towers)
        return [*itertools.chain.from_iterable(blocks), *self.language_model.model.layers]

    def export(
        self, whole: Callable[[torch.Tensor], torch.Tensor], form: WeightForm = "merged"
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """See ``TrainableModel``; ``merged`` names are those of published folders."""
        if self.cfg.is_lora and form == "merged":
            yield from merged(self.state_dict(), self.cfg, whole)
        else:
            yield from super().export(whole, form)


Build = Callable[[PrismaticShape, PrismaticInputs], PrismaticPolicy]


def build_prismatic(cfg: OpenVLAConfig, build: Build) -> PrismaticPolicy:
    """Build a policy on device ``meta`` whose ``weight_source`` is ``model_path``.

    Args:
        cfg: The ``actor.model`` section.
        build: Makes the policy, without memory.

    Raises:
        ConfigError: The folder does not exist, or is not of this model.
        MissingPackageError: transformers is not installed.
    """
    require("transformers", needed_by=f"model_type={cfg.model_type}")
    require_model_path(cfg.model_path)
    folder = find_model_folder(cfg.model_path)
    try:
        shape = PrismaticShape.of_config(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise ConfigError(
            f"actor.model.model_path: config.json of '{folder}' is not that of a Prismatic model: "
            f"{type(error).__name__}: {error}. Give a folder of OpenVLA or OpenVLA-OFT."
        ) from error
    inputs = PrismaticInputs(cfg, folder, shape.image_size)
    with torch.device("meta"):
        policy = build(shape, inputs)
        adapt(policy, cfg)
    compute_buffers(policy.language_model, cfg.model_path)
    published = PublishedWeights(folder, policy.components())
    last = f"value_head.{2 * len(cfg.value_hidden_dims)}."
    seed = torch.initial_seed()

    def new(name: str, start: Sequence[int]) -> torch.Tensor | None:
        if name == "log_std":
            assert isinstance(cfg, OpenVLAOFTConfig)
            return torch.full(tuple(start), cfg.l1_std).log()
        return initial_head(name, start, seed=seed, last=last) if name.startswith("value_head.") else None

    policy.weight_source = StartingWeights(policy, published, new=new, folder=folder)
    return policy.eval()


def adapt(policy: PrismaticPolicy, cfg: OpenVLAConfig) -> None:
    """Freeze what the keys say, and add adapters to the vision towers, the projector and the language model."""
    parts = ("vision_backbone", "projector", "language_model")
    frozen = {_FROZEN[part] for part in cfg.freeze}
    if cfg.is_lora:
        whole = nn.ModuleDict({part: getattr(policy, part) for part in parts if part not in frozen})
        add_adapters(whole, cfg)
    for part in frozen:
        getattr(policy, part).requires_grad_(False)


def _language_model(shape: PrismaticShape) -> Any:
    """Return a Llama of transformers; attention takes the mask that it is given, and no other."""
    transformers = require("transformers", needed_by="a vision-language-action policy")
    keys = {name: value for name, value in shape.text.items() if name not in {"torch_dtype", "dtype", "model_type"}}
    config = transformers.AutoConfig.for_model(shape.text.get("model_type", "llama"), **keys)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="sdpa")
