"""Language models of transformers built on device ``meta``, and their weights as a source of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from rlinf.config.schema.model import CausalLMConfig
from rlinf.errors import CheckpointError, ConfigError
from rlinf.models.files.tensor_files import TensorFiles, abridged
from rlinf.models.language.model_path import find_model_folder
from rlinf.utils.optional import require

_COMPUTED = ("rotary_emb.inv_freq",)
"""Ends of names that old checkpoints hold and models compute."""

_EXPERTS = (["MergeModulelist"], ["MergeModulelist", "Concatenate"])
"""What transformers does with the experts in a file: it stacks them, after gate and up of each are joined."""


def build_on_meta(
    cfg: CausalLMConfig, attention: str | Mapping[str, str], *, loader: str = "AutoModelForCausalLM"
) -> Any:
    """Return the transformers model that ``model_path`` names, its parameters on device ``meta``, in float32.

    Args:
        cfg: The ``actor.model`` section.
        attention: Name of the attention, as transformers knows it; or names by the part of the model.
        loader: Class of transformers that builds the model.

    Raises:
        ConfigError: transformers knows no such model.
    """
    transformers = require("transformers", needed_by="model_type=causal_lm")
    try:
        config = transformers.AutoConfig.from_pretrained(find_model_folder(cfg.model_path))
        with torch.device("meta"):
            model = getattr(transformers, loader).from_config(
                config, dtype=torch.float32, attn_implementation=attention
            )
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"actor.model.model_path: transformers cannot load '{cfg.model_path}': {error} Give the folder of a "
            "Hugging Face checkpoint of a causal language model."
        ) from error
    model.tie_weights()
    compute_buffers(model, cfg.model_path)
    return model.eval()


def compute_buffers(model: Any, model_path: str) -> None:
    """Give buffers their values, which no file holds: the frequencies of rotary embeddings.

    Args:
        model: Of transformers, on device ``meta``.
        model_path: For messages.

    Raises:
        ConfigError: It computes buffers in a way that is not known.
    """
    for module in model.modules():
        names = [name for name, buffer in module.named_buffers(recurse=False) if buffer.is_meta]
        for name in names:
            module._buffers[name] = torch.full_like(module._buffers[name], float("nan"), device="cpu")
        if not names:
            continue
        model._init_weights(module)
        if any(bool(module._buffers[name].isnan().any()) for name in names):
            raise ConfigError(
                f"actor.model.model_path: '{model_path}' is a {type(model).__name__}, which cannot be trained "
                f"here: {type(module).__name__} computes {', '.join(names)} in a way that is not known."
            )


class PretrainedWeights:
    """The weights of a Hugging Face checkpoint by the names and shapes that the model gives them.

    Args:
        cfg: The ``actor.model`` section.
        model: The transformers model that they are of, on device ``meta``.

    Raises:
        ConfigError: The checkpoint is not one of this model.
    """

    def __init__(self, cfg: CausalLMConfig, model: Any) -> None:
        self._path = cfg.model_path
        try:
            self._files = TensorFiles.of_folder(find_model_folder(cfg.model_path))
        except CheckpointError as error:
            raise ConfigError(
                f"actor.model.model_path: transformers cannot load '{cfg.model_path}': {error}"
            ) from error
        state = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        self._parts = self._find_parts(model, state)
        self._require_all(model, state)
        self._shapes = {name: shape for name, shape in state.items() if name in self._parts}

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of every tensor, by name."""
        return self._shapes

    def stacked(self) -> Mapping[str, list[list[str]]]:
        """Return the names in the files of what is stacked: columns of experts, by the name of the model's tensor."""
        return {name: columns for name, columns in self._parts.items() if not _is_single(columns)}

    def rows(self, name: str, begin: int, end: int) -> torch.Tensor:
        """Return rows of a tensor; of experts that the model keeps in one tensor, whole experts."""
        columns = self._parts[name]
        if _is_single(columns):
            return self._files.rows(columns[0][0], begin, end)
        experts = [
            torch.cat(
                [self._files.rows(column[index], 0, self._files.shapes()[column[index]][0]) for column in columns]
            )
            for index in range(begin, end)
        ]
        return torch.stack(experts)

    def _find_parts(self, model: Any, state: Mapping[str, Any]) -> dict[str, list[list[str]]]:
        """Return the names in the files of what each tensor consists of: columns of experts, or one name."""
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightConverter, rename_source_key

        transforms = get_model_conversion_mapping(model) or []
        converters = [one for one in transforms if isinstance(one, WeightConverter)]
        renamings = [one for one in transforms if not isinstance(one, WeightConverter)]
        self._require_known(model, converters)
        columns: dict[str, dict[str | None, list[str]]] = {}
        for key in sorted(self._files.shapes(), key=_natural):
            name, pattern = rename_source_key(key, renamings, converters, model.base_model_prefix, state)
            if not key.endswith(_COMPUTED):
                columns.setdefault(name, {}).setdefault(pattern, []).append(key)
        order = [pattern for converter in converters for pattern in converter.source_patterns]
        return {
            name: [found[pattern] for pattern in sorted(found, key=lambda p: order.index(p) if p else -1)]
            for name, found in columns.items()
        }

    def _require_known(self, model: Any, converters: list[Any]) -> None:
        """Return if tensors are stored whole, or as experts of which rows are put one above the other."""
        for converter in converters:
            kinds = [type(operation).__name__ for operation in converter.operations]
            if kinds not in _EXPERTS:
                raise ConfigError(
                    f"actor.model.model_path: '{self._path}' is a {type(model).__name__}, which cannot be trained "
                    f"here: its files hold {', '.join(converter.source_patterns)} in another layout than the model "
                    f"({', '.join(kinds)})."
                )

    def _require_all(self, model: Any, state: Mapping[str, tuple[int, ...]]) -> None:
        tied = set(getattr(model, "all_tied_weights_keys", None) or ())
        missing = [name for name in state if name not in self._parts and name not in tied]
        unexpected = [name for name in self._parts if name not in state]
        if missing or unexpected:
            what = f"holds no weights for {abridged(missing)}" if missing else ""
            more = f"holds weights that the model does not have: {abridged(unexpected)}" if unexpected else ""
            raise ConfigError(
                f"actor.model.model_path: '{self._path}' {' and '.join(filter(None, (what, more)))}. It is incomplete "
                "or of another model: download it again."
            )
        for name, shape in state.items():
            if name in self._parts and self._shape_of(self._parts[name]) != shape:
                raise ConfigError(
                    f"actor.model.model_path: '{self._path}' holds {name} in shape "
                    f"{self._shape_of(self._parts[name])}; by its config.json the model has {shape}. The files are of "
                    "different models: download it again."
                )

    def _shape_of(self, columns: list[list[str]]) -> tuple[int, ...]:
        """Return the shape that a tensor's parts come to."""
        shapes = self._files.shapes()
        first = shapes[columns[0][0]]
        if _is_single(columns):
            return first
        return (len(columns[0]), sum(shapes[column[0]][0] for column in columns), *first[1:])


def _is_single(columns: list[list[str]]) -> bool:
    return len(columns) == 1 and len(columns[0]) == 1


def _natural(key: str) -> list[tuple[int, str]]:
    """Return a sort key in which ``experts.10`` follows ``experts.9``."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in key.split(".")]
