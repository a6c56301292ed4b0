"""Weights in published folders as a source of rows for models that were built without memory; and written back."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from rlinf.config.schema.vla import VLAConfig
from rlinf.errors import CheckpointError, ConfigError
from rlinf.models.files.peft_folder import PeftAdapter, open_adapter, open_merged
from rlinf.models.files.tensor_files import TensorFiles, abridged
from rlinf.models.language.model_path import find_model_folder, require_model_path
from rlinf.models.lora import adapter_names, initial_adapter, is_adapter, unadapted_name
from rlinf.models.materialize import require_same_names
from rlinf.models.trainable import TrainableModel
from rlinf.utils.optional import require
from rlinf.utils.seeding import derive_seed

Content = TypeVar("Content")
File: TypeAlias = tuple[Path, TensorFiles, dict[str, str | None]]
"""A file of a folder, what reads it, and the model's names for its tensors."""
_DISTRIBUTED = "module."
"""What published training puts before the names in component files."""
_HORIZON_KEYS = ("action_horizon", "chunk_size")
"""What ``config.json`` calls the actions that are predicted: openpi and GR00T, or LeRobot."""
_INDEX = ".index.json"
_COPIED = (
    *("*.json", "*.model", "*.txt", "*.jinja", "*.py"),
    *("**/norm_stats.json", "experiment_cfg/*.json", "policy_*.safetensors", "vlm/*", "eagle/*"),
)


def read_config(
    model_path: str,
    model_type: str,
    read: Callable[[Path, Mapping[str, Any]], Content],
    written_by: str,
    *,
    may_lack: bool = False,
) -> tuple[Path, Content]:
    """Return the folder of a checkpoint, and what its ``config.json`` says.

    Args:
        model_path: ``actor.model.model_path``.
        model_type: ``actor.model.model_type``, for messages.
        read: Makes it of the folder and the content.
        written_by: What writes such folders, for the message.
        may_lack: Whether folders without ``config.json`` are published; it then says nothing.

    Raises:
        ConfigError: The folder does not exist, or is not of this model.
        MissingPackageError: transformers is not installed.
    """
    require("transformers", needed_by=f"model_type={model_type}")
    require_model_path(model_path)
    folder = find_model_folder(model_path)
    file = folder / "config.json"
    try:
        config = {} if may_lack and not file.exists() else json.loads(file.read_text(encoding="utf-8"))
        return folder, read(folder, config)
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
        unused_parts: Parts of components that the policy does not need, by the beginnings of their tensors' names.

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
        unused_parts: Sequence[str] = (),
    ) -> None:
        self._sources: dict[str, tuple[TensorFiles, str]] = {}
        try:
            main = TensorFiles.of_folder(folder)
            self._files = [main]
            stored = main.shapes()
            needed = {name.removeprefix(prefix): name for name in stored if name.startswith(prefix)}
            self._tied = {name: needed[other] for name, other in (tied or {}).items() if other in needed}
            self._sources |= {name: (main, key) for name, key in needed.items() if name not in unused}
            self._sources |= {name: (main, other) for name, other in self._tied.items() if name not in needed}
            for component in components:
                self._sources = {
                    name: source for name, source in self._sources.items() if not name.startswith(f"{component}.")
                }
                file = TensorFiles([component_file(folder, component)])
                self._files.append(file)
                for name in file.shapes():
                    own = f"{component}.{name.removeprefix(_DISTRIBUTED)}"
                    if not own.startswith(tuple(unused_parts)):
                        self._sources[own] = (file, name)
        except CheckpointError as error:
            raise ConfigError(f"actor.model.model_path: '{folder}' cannot be loaded: {error}") from error

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of every tensor, by name."""
        return {name: file.shapes()[key] for name, (file, key) in self._sources.items()}

    def files(self) -> Iterator[File]:
        """Yield each file, its tensors, and the model's names for them: None for what policies do not need.

        A tensor that is tied to one of the model has its name, if the files have the same values for both.
        """
        names = {source: name for name, source in self._sources.items()}
        for name, other in self._tied.items():
            tensors, key = self._sources.get(name, (None, other))
            if tensors is not None and key != other:
                both = (tensors.whole(key), tensors.whole(other))
                if both[0].shape == both[1].shape and torch.equal(*both):
                    names[tensors, other] = name
        for tensors in self._files:
            for path, keys in tensors.files.items():
                yield path, tensors, {key: names.get((tensors, key)) for key in keys}

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
        cfg: Names the adapter that is started from, if any; None has none.

    Raises:
        ConfigError: The folder lacks weights of the model, has others, or some of another shape; or the adapter is of
            another model.
    """

    def __init__(
        self,
        model: nn.Module,
        published: PublishedWeights,
        *,
        new: Callable[[str, Sequence[int]], torch.Tensor | None],
        folder: Path,
        cfg: VLAConfig | None = None,
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
        self._adapter = None if cfg is None else _starting_adapter(cfg, state)
        self._held = {} if self._adapter is None else self._adapter.shapes()

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of every tensor, by name."""
        return self._shapes

    def rows(self, name: str, begin: int, end: int) -> torch.Tensor:
        """Return rows of a tensor, the same on every rank."""
        if self._adapter is not None and name in self._held:
            return self._adapter.rows(name, begin, end)
        if name in self.new:
            start = self.new[name]
            return start[begin:end] if start.ndim else start
        if is_adapter(name):
            return initial_adapter(name, self._shapes[name], self._seed)[begin:end]
        weights = self.published.rows(unadapted_name(name), begin, end)
        a, b = adapter_names(name.removesuffix(".weight"))
        if self._adapter is None or b not in self._held:
            return weights
        added, scaling = self._adapter.rows(b, begin, end).float(), self._adapter.alpha / self._adapter.rank
        return torch.addmm(weights.float(), added, self._adapter.tensor(a).float(), alpha=scaling)


def _starting_adapter(cfg: VLAConfig, shapes: Mapping[str, tuple[int, ...]]) -> PeftAdapter | None:
    """Return the adapter that a policy is trained on from, or that is added in; None if there is none."""
    if cfg.is_lora or cfg.lora_path is None:
        return open_adapter(cfg, shapes, with_whole=True)
    return open_merged(cfg.lora_path, shapes)


def has_component(folder: Path, component: str) -> bool:
    """Return whether a folder holds a file of a component."""
    return any(folder.glob(_pattern(component)))


def component_file(folder: Path, component: str) -> Path:
    """Return the file of a component.

    Raises:
        CheckpointError: There is none, or more than one.
    """
    found = sorted(folder.glob(_pattern(component)))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise CheckpointError(
            f"it needs one file {component}--<steps>_checkpoint.pt and has {names}; a model without it is trained "
            "without the key that asks for it"
        )
    return found[0]


def _pattern(component: str) -> str:
    return f"{component}--*checkpoint.pt"


def initial_head(name: str, shape: Sequence[int], *, seed: int, last: str | None = None) -> torch.Tensor:
    """Return the first weights of a new head's layer: torch's for a linear layer; 0 for the last one and for biases.

    Args:
        name: Of the parameter.
        shape: Its shape.
        seed: Of the run.
        last: Name of the last layer; None if it begins as the others do.
    """
    weights = torch.zeros(tuple(shape))
    if len(shape) > 1 and (last is None or not name.startswith(last)):
        generator = torch.Generator().manual_seed(derive_seed(seed, "head", name))
        nn.init.kaiming_uniform_(weights, a=math.sqrt(5), generator=generator)
    return weights


def write_published(
    folder: Path,
    model: TrainableModel,
    weights: Iterable[tuple[str, torch.Tensor]],
    *,
    source: Path,
    dtype: torch.dtype | None = None,
    horizon: int | None = None,
    components: Sequence[str] = (),
) -> None:
    """Write weights in the layout that they were read in, next to what else the source holds.

    Each tensor goes into a file of the name that it came from; tensors that the model does not need are copied.

    Args:
        folder: Where to; made if it does not exist.
        model: Says which weights are its own: value heads are not published.
        weights: Whole tensors by the model's names (``TrainEngine.export_weights``).
        source: Folder that the model was loaded from.
        dtype: Of floating-point weights; None keeps the type that each tensor has in the source.
        horizon: Actions that the model was trained to predict, which ``config.json`` says; None has none.
        components: Parts that are written to files of their own where the source has none of them.

    Raises:
        CheckpointError: Weights of the model are missing.
    """
    assert isinstance(model.weight_source, StartingWeights)
    published, new = model.weight_source.published, model.weight_source.new
    folder.mkdir(parents=True, exist_ok=True)
    files = list(published.files())
    waiting: dict[str, torch.Tensor] = {}
    added: dict[str, dict[str, torch.Tensor]] = {}
    num_bytes = 0
    for name, tensor in weights:
        component, _, rest = name.partition(".")
        if name in new:
            if component in components:
                added.setdefault(component, {})[rest] = tensor.detach().to("cpu", dtype, copy=True)
            continue
        waiting[name] = tensor.detach().to("cpu")
        for file in [file for file in files if waiting.keys() >= _names(file)]:
            num_bytes += _write_file(folder, *file, weights=waiting, dtype=dtype)
            files.remove(file)
        needed = set().union(*(_names(file) for file in files))
        waiting = {kept: value for kept, value in waiting.items() if kept in needed}
    if files:
        raise CheckpointError(f"'{folder}' is not whole: weights of {abridged(sorted(_names(files[0])))} are missing.")
    for component, content in added.items():
        torch.save(content, folder / f"{component}--latest_checkpoint.pt")
    _copy_rest(source, folder, num_bytes)
    config = folder / "config.json"
    if horizon is not None and config.is_file():
        _write_horizon(config, horizon)


def _names(file: File) -> set[str]:
    return {name for name in file[2].values() if name is not None}


def _write_file(
    folder: Path,
    path: Path,
    tensors: TensorFiles,
    names: Mapping[str, str | None],
    *,
    weights: Mapping[str, torch.Tensor],
    dtype: torch.dtype | None,
) -> int:
    """Write a file as one of the source, and return the bytes of its tensors if it is none of a component's."""
    content: dict[str, torch.Tensor] = {}
    target = folder / path.name
    written: set[str] = set()
    for key, name in names.items():
        tensor = tensors.whole(key) if name is None else weights[name]
        wanted = tensors.dtype(key)
        tensor = tensor.to(dtype if dtype is not None and wanted.is_floating_point else wanted).contiguous()
        # Files have no tensors that share memory.
        content[key] = tensor.clone() if name in written else tensor
        written |= set() if name is None else {name}
    if path.suffix == ".safetensors":
        with safe_open(path, framework="pt") as file:
            save_file(content, target, metadata=file.metadata())
    else:
        torch.save(content, target)
    return 0 if path.suffix == ".pt" else sum(tensor.nbytes for tensor in content.values())


def _copy_rest(source: Path, folder: Path, num_bytes: int) -> None:
    """Copy what a folder holds next to weights; its index says how many bytes there are now."""
    for pattern in _COPIED:
        for path in source.glob(pattern):
            target = folder / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
            if path.name.endswith(_INDEX):
                text = path.read_text(encoding="utf-8")
                before = json.loads(text).get("metadata", {}).get("total_size")
                target.write_text(
                    text.replace(f'"total_size": {before}', f'"total_size": {num_bytes}'), encoding="utf-8"
                )


def _write_horizon(file: Path, horizon: int) -> None:
    """Let ``config.json`` say how many actions the model was trained to predict, where it says another number."""
    config = json.loads(file.read_text(encoding="utf-8"))
    said = {key: horizon for key in _HORIZON_KEYS if config.get(key, horizon) != horizon}
    if said:
        file.write_text(json.dumps(config | said, indent=2) + "\n", encoding="utf-8")
