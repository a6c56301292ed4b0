"""Weights in published folders as a source of rows for models that were built without memory; and written back."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import save_file
from torch import nn

from rlinf.errors import CheckpointError, ConfigError
from rlinf.models.files.tensor_files import TensorFiles
from rlinf.models.language.model_path import find_model_folder, require_model_path
from rlinf.models.lora import initial_adapter, is_adapter, unadapted_name
from rlinf.models.materialize import require_same_names
from rlinf.models.trainable import TrainableModel
from rlinf.utils.optional import require
from rlinf.utils.seeding import derive_seed

Content = TypeVar("Content")
_DISTRIBUTED = "module."
"""What published training puts before the names in component files."""
_COPIED = (
    *("*.json", "*.model", "*.txt", "*.jinja"),
    *("assets/**/*.json", "experiment_cfg/*.json", "policy_*.safetensors", "vlm/*", "eagle/*"),
)


def read_config(
    model_path: str, model_type: str, read: Callable[[Path, Mapping[str, Any]], Content], written_by: str
) -> tuple[Path, Content]:
    """Return the folder of a checkpoint, and what its ``config.json`` says.

    Args:
        model_path: ``actor.model.model_path``.
        model_type: ``actor.model.model_type``, for messages.
        read: Makes it of the folder and the content.
        written_by: What writes such folders, for the message.

    Raises:
        ConfigError: The folder does not exist, or is not of this model.
        MissingPackageError: transformers is not installed.
    """
    require("transformers", needed_by=f"model_type={model_type}")
    require_model_path(model_path)
    folder = find_model_folder(model_path)
    try:
        return folder, read(folder, json.loads((folder / "config.json").read_text(encoding="utf-8")))
    except ConfigError:
        raise
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise ConfigError(
            f"actor.model.model_path: config.json of '{folder}' is not that of {model_type}: "
            f"{type(error).__name__}: {error}. Give a folder that {written_by} has written."
        ) from error


class PublishedWeights:
    """The tensors of a folder by the names of the model: those of its index, and components in files of their own.

    Args:
        folder: In the published layout.
        components: Parts of the model that ``<component>--<steps>_checkpoint.pt`` holds.
        tied: Other names of tensors, under which files may hold them.
        unused: Tensors that policies do not need.
        prefix: What files have in front of the model's names; tensors without it are not needed either.

    Raises:
        ConfigError: Files are missing, ambiguous or damaged.
    """

    def __init__(
        self,
        folder: Path,
        components: Sequence[str] = (),
        *,
        tied: Mapping[str, str] | None = None,
        unused: Sequence[str] = (),
        prefix: str = "",
    ) -> None:
        self._sources: dict[str, tuple[TensorFiles, str]] = {}
        try:
            main = TensorFiles.of_folder(folder)
            stored = main.shapes()
            needed = {name.removeprefix(prefix): name for name in stored if name.startswith(prefix)}
            self._sources |= {name: (main, key) for name, key in needed.items() if name not in unused}
            self._unused = dict.fromkeys(stored.keys() - {key for _, key in self._sources.values()}, main)
            for name, other in (tied or {}).items():
                if name not in stored and other in stored:
                    self._sources[name] = (main, other)
            for component in components:
                self._sources = {
                    name: source for name, source in self._sources.items() if not name.startswith(f"{component}.")
                }
                file = TensorFiles([component_file(folder, component)])
                for name in file.shapes():
                    self._sources[f"{component}.{name.removeprefix(_DISTRIBUTED)}"] = (file, name)
        except CheckpointError as error:
            raise ConfigError(f"actor.model.model_path: '{folder}' cannot be loaded: {error}") from error

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of every tensor, by name."""
        return {name: file.shapes()[key] for name, (file, key) in self._sources.items()}

    def stored_name(self, name: str) -> str:
        """Return the name that the files have for a tensor, which may be tied to another."""
        return self._sources[name][1]

    def unused(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the names and values of tensors that policies do not need."""
        for name, file in self._unused.items():
            yield name, file.rows(name, 0, file.shapes()[name][0])

    def rows(self, name: str, begin: int, end: int) -> torch.Tensor:
        """Return rows ``begin`` to ``end`` of a tensor, on the host; all of one without dimensions."""
        file, key = self._sources[name]
        return file.rows(key, begin, end)


class StartingWeights:
    """Published weights, and the first ones of what the folder does not hold: adapters and new heads.

    Attributes:
        new: The first weights of new heads, by name.
        published: Of the folder.

    Args:
        model: On device ``meta``.
        published: Of the folder.
        new: First weights of parameters that are not published, by name; called with the shape.
        folder: For messages.

    Raises:
        ConfigError: The folder lacks weights of the model, has others, or some of another shape.
    """

    def __init__(
        self,
        model: nn.Module,
        published: PublishedWeights,
        *,
        new: Callable[[str, Sequence[int]], torch.Tensor | None],
        folder: Path,
    ) -> None:
        self.published, self._seed = published, torch.initial_seed()
        state = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        starts = {name: new(name, shape) for name, shape in state.items() if not is_adapter(name)}
        self.new = {name: start for name, start in starts.items() if start is not None}
        adapted = {unadapted_name(name): name for name in state}
        self._shapes = {adapted.get(name, name): shape for name, shape in published.shapes().items()}
        self._shapes |= {name: shape for name, shape in state.items() if name in self.new or is_adapter(name)}
        try:
            require_same_names(model, self)
        except CheckpointError as error:
            raise ConfigError(
                f"actor.model.model_path: '{folder}' is not of this model: {error}. Download it again, or correct "
                "actor.model.model_type and the keys that add parts to the model."
            ) from error

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of every tensor, by name."""
        return self._shapes

    def rows(self, name: str, begin: int, end: int) -> torch.Tensor:
        """Return rows of a tensor, the same on every rank."""
        if name in self.new:
            start = self.new[name]
            return start[begin:end] if start.ndim else start
        if is_adapter(name):
            return initial_adapter(name, self._shapes[name], self._seed)[begin:end]
        return self.published.rows(unadapted_name(name), begin, end)


def component_file(folder: Path, component: str) -> Path:
    """Return the file of a component.

    Raises:
        CheckpointError: There is none, or more than one.
    """
    found = sorted(folder.glob(f"{component}--*checkpoint.pt"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise CheckpointError(
            f"it needs one file {component}--<steps>_checkpoint.pt and has {names}; a model without it is trained "
            "without the key that asks for it"
        )
    return found[0]


def initial_head(name: str, shape: Sequence[int], *, seed: int, last: str) -> torch.Tensor:
    """Return the first weights of a new head's layer: torch's for a linear layer; 0 for the last one and for biases.

    Args:
        name: Of the parameter.
        shape: Its shape.
        seed: Of the run.
        last: Name of the last layer.
    """
    weights = torch.zeros(tuple(shape))
    if len(shape) > 1 and not name.startswith(last):
        generator = torch.Generator().manual_seed(derive_seed(seed, "head", name))
        nn.init.kaiming_uniform_(weights, a=math.sqrt(5), generator=generator)
    return weights


def write_published(
    folder: Path,
    model: TrainableModel,
    weights: Iterable[tuple[str, torch.Tensor]],
    *,
    source: Path,
    components: Sequence[str] = (),
) -> None:
    """Write weights in the layout that they were read in, next to the configuration and tokenizer of the source.

    Args:
        folder: Where to; made if it does not exist.
        model: Says which weights are its own: value heads are not published.
        weights: Whole tensors by the model's names (``TrainEngine.export_weights``), in the precision to write.
        source: Folder that the model was loaded from.
        components: Parts of the model with files of their own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    main: dict[str, torch.Tensor] = {}
    parts: dict[str, dict[str, torch.Tensor]] = {component: {} for component in components}
    assert isinstance(model.weight_source, StartingWeights)
    published = model.weight_source.published
    for name, tensor in _published_only(model, weights):
        component = next((part for part in components if name.startswith(f"{part}.")), None)
        kept = tensor.detach().to("cpu").contiguous()
        if component is None:
            main[published.stored_name(name)] = kept
        else:
            parts[component][name.removeprefix(f"{component}.")] = kept
    main |= {name: tensor for name, tensor in published.unused() if name not in main}
    save_file(main, folder / "model.safetensors", metadata={"format": "pt"})
    for component, tensors in parts.items():
        torch.save(tensors, folder / component_file(source, component).name)
    for pattern in _COPIED:
        for path in source.glob(pattern):
            if not path.name.endswith(".index.json"):
                target = folder / path.relative_to(source)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)


def _published_only(
    model: TrainableModel, weights: Iterable[tuple[str, torch.Tensor]]
) -> Iterator[tuple[str, torch.Tensor]]:
    assert isinstance(model.weight_source, StartingWeights)
    new = model.weight_source.new
    return ((name, tensor) for name, tensor in weights if name not in new)
