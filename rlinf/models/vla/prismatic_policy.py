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
from torch.nn import functional as F

from rlinf.config.schema.vla import CENTER_AREA, OpenVLAConfig, OpenVLAOFTConfig
from rlinf.data.messages.embodied import CROPPED, Observation
from rlinf.errors import ConfigError
from rlinf.models.base_policy import BasePolicy
from rlinf.models.control.heads import run_head
from rlinf.models.language.model_path import find_model_folder, require_model_path
from rlinf.models.language.pretrained import compute_buffers
from rlinf.models.lora import adapt_policy, merged
from rlinf.models.trainable import WeightForm
from rlinf.models.vla.action_prompts import OpenVLAPrompts
from rlinf.models.vla.action_tokens import ActionTokens
from rlinf.models.vla.distributions import TokenDistribution
from rlinf.models.vla.image_resizing import center_crop, resize, through_jpeg
from rlinf.models.vla.norm_statistics import Statistics
from rlinf.models.vla.observed import image_of, states_of, tasks_of
from rlinf.models.vla.prismatic import FiLMBackbone, PrismaticShape, Projector, VisionBackbone
from rlinf.models.vla.published_folder import PublishedWeights, StartingWeights, initial_head
from rlinf.models.vla.value_heads import value_head
from rlinf.utils.optional import require

ACTION = "action"
"""Where the choice of an action stands in ``forward_inputs``: int16 bins, or normalised numbers of the L1 head."""
KEPT = "kept_bins"
"""Where the bins stand that it was sampled among, with ``top_k``: int16 [N, C, A, k]; -1 where it was not sampled."""
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
        """Return a camera's images at the model's size; what is cropped already is not cropped to the middle."""
        image = image_of(obs, key)
        if tuple(image.shape[1:3]) != (self.image_size, self.image_size):
            image = through_jpeg(image) if self.cfg.image_jpeg else image
            image = resize(image, self.image_size, self.cfg.image_resize)
        return center_crop(image, CENTER_AREA) if self.cfg.center_crop and CROPPED not in obs else image


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
    def action_logits(self, forward_inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return logits of bins for every number of an action, float32 [N, C, A, n].

        Args:
            forward_inputs: See ``BasePolicy.default_forward``.
        """

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

    def distribution_of(self, logits: torch.Tensor, inputs: dict[str, torch.Tensor] | None = None) -> TokenDistribution:
        """Return the distribution of bins that training samples from.

        Args:
            logits: float32 [N, C, A, n].
            inputs: ``forward_inputs`` of actions that are given; None to act.
        """
        given = {} if inputs is None else {"chosen": inputs[ACTION], "kept": inputs.get(KEPT)}
        cfg = self.cfg
        return TokenDistribution(logits, self.tokens, temperature=cfg.temperature, top_k=cfg.top_k, **given)

    def token_inputs(self, bins: torch.Tensor, kept: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        """Return what ``forward_inputs`` hold of an action.

        Args:
            bins: [N, C, A].
            kept: See ``TokenDistribution``; None where the policy has not sampled the action.
        """
        inputs = {ACTION: bins.to(torch.int16)}
        if self.cfg.top_k is not None:
            size = min(self.cfg.top_k, self.tokens.num_bins)
            none = torch.full((*bins.shape, size), -1, dtype=torch.int16, device=bins.device)
            inputs[KEPT] = none if kept is None else kept
        return inputs

    def values_of(self, hidden: torch.Tensor) -> torch.Tensor | None:
        """Return values [N, V] of the hidden states [N, W] that choose the first number; None without a value head."""
        if self.value_head is None:
            return None
        features = hidden.detach() if self.cfg.value_detach else hidden
        return run_head(self.value_head, features)

    def actions_beyond(self, obs: Observation, actions: torch.Tensor) -> list[float]:
        """See ``BasePolicy``."""
        del obs
        shares: list[float] = self.inputs.actions.beyond(actions).tolist()
        return shares

    @property
    def num_supervised_actions(self) -> int:
        """See ``BasePolicy``."""
        return self.cfg.num_action_chunks

    def supervised_forward(self, forward_inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """See ``BasePolicy``: cross-entropy of action tokens, which ``temperature`` and ``top_k`` have no part in."""
        bins = forward_inputs[ACTION].long()
        logits = self.action_logits(forward_inputs)
        return F.cross_entropy(logits.flatten(0, -2), bins.flatten(), reduction="none").view(bins.shape)

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

    policy.weight_source = StartingWeights(policy, published, new=new, folder=folder, cfg=cfg)
    return policy.eval()


def adapt(policy: PrismaticPolicy, cfg: OpenVLAConfig) -> None:
    """Freeze what the keys say, and add adapters to the vision towers, the projector and the language model."""
    frozen = {_FROZEN[part] for part in cfg.freeze}
    adapted = sorted(set(_FROZEN.values()) - frozen)
    adapt_policy(policy, nn.ModuleDict({part: getattr(policy, part) for part in adapted}), cfg)
    for part in frozen:
        getattr(policy, part).requires_grad_(False)


def _language_model(shape: PrismaticShape) -> Any:
    """Return a Llama of transformers; attention takes the mask that it is given, and no other."""
    transformers = require("transformers", needed_by="a vision-language-action policy")
    keys = {name: value for name, value in shape.text.items() if name not in {"torch_dtype", "dtype", "model_type"}}
    config = transformers.AutoConfig.for_model(shape.text.get("model_type", "llama"), **keys)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="sdpa")
