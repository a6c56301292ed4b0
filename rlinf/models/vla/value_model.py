"""``recap_value_model`` and ``steam_value_model``: distributions over bins, given frames and a sentence.

The published value models stand on SigLIP and Gemma; so does this one, with the weights of a policy's folder. Features
are the mean outputs over the first frame's images, their change to each further frame, and the mean over the words,
all normalised; a head of one hidden layer reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rlinf.config.schema.value import ValueModelConfig
from rlinf.models.frame_model import SCALE, FrameModel
from rlinf.models.vla.flow_inputs import clean_task, pad_prompts, tokenizer_folder
from rlinf.models.vla.flow_vla import Prefix, freeze
from rlinf.models.vla.image_resizing import resize_with_padding
from rlinf.models.vla.pi_model import PaliGemma, PiShape
from rlinf.models.vla.published_folder import PublishedWeights, StartingWeights, initial_head, read_config
from rlinf.utils.optional import require

_PREFIX = "paligemma_with_expert.paligemma."
_WORDS, _HEAD = "model.language_model.embed_tokens.weight", "lm_head.weight"


class ValueInputs:
    """Turns frames and sentences into what the model takes.

    Args:
        cfg: The ``actor.model`` section.
        folder: Of the checkpoint.
        image_size: Side of the model's images in pixels.
    """

    def __init__(self, cfg: ValueModelConfig, folder: Path, *, image_size: int) -> None:
        self.cfg, self.image_size = cfg, image_size
        transformers = require("transformers", needed_by=f"model_type={cfg.model_type}")
        path = tokenizer_folder(cfg.tokenizer_path, folder)
        self._tokenizer: Any = transformers.PreTrainedTokenizerFast.from_pretrained(path)

    def record(self, images: Sequence[dict[str, torch.Tensor]], tasks: Sequence[str]) -> dict[str, torch.Tensor]:
        """Return ``images.<frame>.<key>`` uint8 [n, S, S, 3], ``token_ids`` int32 and ``token_mask`` bool [n, L].

        Args:
            images: For each frame, uint8 [n, H, W, 3] by camera.
            tasks: ``n`` sentences.

        Raises:
            ConfigError: A prompt is longer than ``max_prompt_length``.
        """
        rows = [self._tokenizer(clean_task(task)).input_ids for task in tasks]
        ids, mask = pad_prompts(rows, tasks, self.cfg.max_prompt_length)
        record = {
            f"images.{frame}.{key}": resize_with_padding(shown[key], self.image_size)
            for frame, shown in enumerate(images)
            for key in self.cfg.image_keys
        }
        return {**record, "token_ids": ids, "token_mask": mask}


class ValueMember(PaliGemma):
    """One model of the ensemble.

    Args:
        cfg: The model's keys.
        shape: Sizes of the published model.
    """

    def __init__(self, cfg: ValueModelConfig, shape: PiShape) -> None:
        super().__init__(shape)
        self.names = [f"images.{frame}.{key}" for frame in range(cfg.num_frames) for key in cfg.image_keys]
        self.num_frames = cfg.num_frames
        width, hidden = shape.language.width, cfg.fusion_hidden_dim
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(cfg.num_frames + 1))
        self.head = nn.Sequential(
            nn.Linear((cfg.num_frames + 1) * width, hidden), nn.GELU(), nn.Linear(hidden, cfg.num_bins)
        )

    def forward(self, record: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return logits, float32 [n, B]."""
        images, mask = [record[name] for name in self.names], record["token_mask"]
        prefix = self.prefix(images, record["token_ids"], torch.cat([mask.new_ones(len(mask), len(images)), mask], 1))
        features = self._features(prefix, num_words=mask.shape[1])
        logits: torch.Tensor = self.head(features)
        return logits.float()

    def _features(self, prefix: Prefix, *, num_words: int) -> torch.Tensor:
        patches = (prefix.output.shape[1] - num_words) // self.num_frames
        sizes = [patches] * self.num_frames + [num_words]
        outputs, there = torch.split(prefix.output, sizes, 1), torch.split(prefix.there, sizes, 1)
        first, *later, words = (
            (output * known.unsqueeze(-1)).sum(1) / known.sum(1, keepdim=True).clamp(min=1)
            for output, known in zip(outputs, there, strict=True)
        )
        # Frames of an episode are much alike: what changes is a small part of what each shows.
        parts = [first, *(mean - first for mean in later), words]
        # In the precision that the weights have: that of mixed precision, say.
        dtype = next(self.norms.parameters()).dtype
        return torch.cat([norm(part.to(dtype)) for norm, part in zip(self.norms, parts, strict=True)], -1)


class ValueModel(FrameModel):
    """See ``FrameModel``.

    Args:
        cfg: The model's keys.
        shape: Sizes of the published model.
        inputs: Makes records of frames.
    """

    def __init__(self, cfg: ValueModelConfig, shape: PiShape, inputs: ValueInputs) -> None:
        super().__init__(cfg)
        self.inputs = inputs
        self.members = nn.ModuleList(ValueMember(cfg, shape) for _ in range(cfg.ensemble_size))

    def record(self, images: Sequence[dict[str, torch.Tensor]], tasks: Sequence[str]) -> dict[str, torch.Tensor]:
        """See ``FrameModel``."""
        return self.inputs.record(images, tasks)

    def forward(self, record: dict[str, torch.Tensor]) -> torch.Tensor:
        """See ``FrameModel``."""
        return torch.stack([member(record) for member in self.members], 1)

    def is_value_parameter(self, name: str) -> bool:
        """See ``TrainableModel``: the heads, which have ``value_lr`` where it is given."""
        return ".head." in name or ".norms." in name

    def shard_units(self) -> list[nn.Module]:
        """See ``TrainableModel``: layers of both stacks, word embeddings."""
        words = [member.parts["language_model"].embed_tokens for member in self._members]
        return [*self.recompute_units(), *words]

    def recompute_units(self) -> list[nn.Module]:
        """See ``TrainableModel``."""
        towers = [member.parts["vision_tower"]["vision_model"].encoder.layers for member in self._members]
        languages = [member.parts["language_model"].layers for member in self._members]
        return [layer for layers in (*towers, *languages) for layer in layers]

    @property
    def _members(self) -> list[Any]:
        return list(self.members)


class MemberWeights(PublishedWeights):
    """The weights of a policy's folder, once for each model of an ensemble.

    Args:
        folder: In openpi's layout.
        num_members: Models.
    """

    def __init__(self, folder: Path, *, num_members: int) -> None:
        super().__init__(folder, prefix=_PREFIX)
        sources = dict(self._sources)
        head = sources.pop(_HEAD, None)
        if _WORDS not in sources and head is not None:
            sources[_WORDS] = head
        self._sources = {
            f"members.{member}.paligemma.{name}": source
            for member in range(num_members)
            for name, source in sources.items()
        }


def build_value_model(cfg: ValueModelConfig, *, num_values: int = 1) -> ValueModel:
    """Build a model that judges frames, on device ``meta``; ``weight_source`` is ``model_path``.

    Args:
        cfg: The ``actor.model`` section.
        num_values: Not used.

    Raises:
        ConfigError: The folder does not exist, or is not of openpi.
        MissingPackageError: transformers is not installed.
    """
    del num_values
    folder, shape = read_config(
        cfg.model_path, cfg.model_type, lambda _, config: PiShape.of_config(config), "openpi's conversion to PyTorch"
    )
    inputs = ValueInputs(cfg, folder, image_size=shape.vision["image_size"])
    with torch.device("meta"):
        model = ValueModel(cfg, shape, inputs)
    for member in model._members:
        member.compute_buffers()
        parts = member.parts
        freeze(
            {
                "vision": parts["vision_tower"],
                "projector": parts["multi_modal_projector"],
                "language": parts["language_model"],
            },
            cfg.freeze,
        )
    seed = torch.initial_seed()

    def new(name: str, tensor_shape: Sequence[int]) -> torch.Tensor | None:
        if name == SCALE:
            return torch.zeros(2)
        if ".norms." in name:
            return torch.full(tuple(tensor_shape), 1.0 if name.endswith(".weight") else 0.0)
        member, _, rest = name.partition(".head.")
        return initial_head(name, tensor_shape, seed=seed, last=f"{member}.head.2.") if rest else None

    weights = MemberWeights(folder, num_members=cfg.ensemble_size)
    model.weight_source = StartingWeights(model, weights, new=new, folder=folder)
    return model.eval()
