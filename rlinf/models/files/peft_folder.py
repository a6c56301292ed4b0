"""Low-rank adapters in the folders of ``peft``: ``adapter_config.json`` and ``adapter_model.safetensors``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from rlinf.config.schema.lora_keys import LoRAKeys
from rlinf.config.schema.model import CausalLMConfig
from rlinf.config.schema.vla import VLAConfig
from rlinf.errors import CheckpointError, ConfigError
from rlinf.models.files.tensor_files import TensorFiles, abridged
from rlinf.models.lora import ADAPTER, adapted_layer, adapter_names, is_adapter, is_within
from rlinf.utils.optional import require

ADAPTER_FOLDER = "adapter"
"""Of a checkpoint."""
_CONFIG, _WEIGHTS = "adapter_config.json", ("adapter_model.safetensors", "adapter_model.bin")
_PREFIX = "base_model.model."
_PLAIN = {"peft_type": "LORA", "bias": "none"}
_UNKNOWN = ("use_rslora", "use_dora", "rank_pattern", "alpha_pattern", "layer_replication")
_WHOLE = "modules_to_save"
_VALUE_HEAD = "value_head."


class PeftAdapter:
    """The low-rank adapter in a folder of ``peft``, by the names of a model adapted by ``add_adapters``.

    Attributes:
        rank: Of the adapters.
        alpha: Their output is multiplied by this over ``rank``.

    Args:
        folder: Of the adapter.
        with_whole: Whether it may also hold modules that were trained whole.

    Raises:
        CheckpointError: It holds none, or one that does more than add products of two matrices.
    """

    def __init__(self, folder: Path, *, with_whole: bool = False) -> None:
        try:
            config: dict[str, Any] = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(f"'{folder}' holds no adapter of peft: {_CONFIG} cannot be read ({error})") from error
        found = {key: config[key] for key, plain in _PLAIN.items() if config.get(key, plain) != plain}
        refused = _UNKNOWN if with_whole else (*_UNKNOWN, _WHOLE)
        found |= {key: config[key] for key in refused if config.get(key)}
        if found:
            raise CheckpointError(f"'{folder}' holds more than a plain low-rank adapter: {found}. Merge it with peft.")
        path = next((folder / name for name in _WEIGHTS if (folder / name).is_file()), folder / _WEIGHTS[0])
        self.rank, self.alpha = int(config["r"]), float(config["lora_alpha"])
        self._files = TensorFiles([path])

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of every tensor, by name."""
        return {_state_name(name): shape for name, shape in self._files.shapes().items()}

    def rows(self, name: str, begin: int, end: int) -> torch.Tensor:
        """Return rows of a tensor, on the host."""
        return self._files.rows(_peft_name(name), begin, end)

    def tensor(self, name: str) -> torch.Tensor:
        """Return a tensor, on the host."""
        return self.rows(name, 0, self.shapes()[name][0])


def open_adapter(
    cfg: LoRAKeys, shapes: Mapping[str, tuple[int, ...]], *, with_whole: bool = False
) -> PeftAdapter | None:
    """Return the adapter that ``actor.model.lora_path`` names, to train on from it; None if it names none.

    Args:
        cfg: The ``actor.model`` section.
        shapes: Of the adapted model's tensors, by name.
        with_whole: See ``PeftAdapter``.

    Raises:
        ConfigError: The folder holds no adapter, or one of another shape.
    """
    if cfg.lora_path is None or not cfg.is_lora:
        return None
    adapter = _named_adapter(cfg.lora_path, with_whole=with_whole)
    if (adapter.rank, adapter.alpha) != (cfg.lora_rank, _alpha(cfg)):
        raise ConfigError(
            f"actor.model.lora_path: the adapter in '{cfg.lora_path}' has rank {adapter.rank} and alpha "
            f"{adapter.alpha:g}; set actor.model.lora_rank={adapter.rank} actor.model.lora_alpha={adapter.alpha:g}."
        )
    wanted = {name: shape for name, shape in shapes.items() if is_adapter(name)}
    held = {name: shape for name, shape in adapter.shapes().items() if is_adapter(name)}
    different = sorted({name for name, _ in wanted.items() ^ held.items()} | _foreign(adapter, shapes))
    if different:
        raise ConfigError(
            f"actor.model.lora_path: the adapter in '{cfg.lora_path}' and this model with "
            f"actor.model.lora_target_modules={cfg.lora_target_modules} differ in {abridged(different)}. Set the keys "
            "as the adapter was trained."
        )
    return adapter


def open_merged(lora_path: str, shapes: Mapping[str, tuple[int, ...]]) -> PeftAdapter:
    """Return the adapter in a folder, for a model that has no adapters and takes it in.

    Args:
        lora_path: ``actor.model.lora_path``.
        shapes: Of the model's tensors, by name.

    Raises:
        ConfigError: The folder holds no adapter, or one of another model.
    """
    adapter = _named_adapter(lora_path, with_whole=True)
    foreign = _foreign(adapter, shapes)
    for name, (rows, *_) in adapter.shapes().items():
        layer = adapted_layer(name)
        if name == adapter_names(layer)[1] and shapes.get(f"{layer}.weight", ())[:1] != (rows,):
            foreign.add(layer)
    if foreign:
        raise ConfigError(
            f"actor.model.lora_path: the adapter in '{lora_path}' is of another model, which has "
            f"{abridged([*foreign])}. Set actor.model.model_path to the model that it was trained on."
        )
    return adapter


def _named_adapter(lora_path: str, *, with_whole: bool) -> PeftAdapter:
    try:
        return PeftAdapter(Path(lora_path).expanduser(), with_whole=with_whole)
    except CheckpointError as error:
        raise ConfigError(f"actor.model.lora_path: {error}") from error


def _foreign(adapter: PeftAdapter, shapes: Mapping[str, tuple[int, ...]]) -> set[str]:
    """Return what a folder holds whole and a model has not, or in another shape; a model may lack a value head."""
    whole = {name: shape for name, shape in adapter.shapes().items() if not is_adapter(name)}
    return {
        name
        for name, shape in whole.items()
        if shapes.get(name) != shape and (name in shapes or not name.startswith(_VALUE_HEAD))
    }


def write_adapter(folder: Path, weights: Iterable[tuple[str, torch.Tensor]], cfg: CausalLMConfig | VLAConfig) -> None:
    """Write an adapter as ``peft`` loads it, and next to it the modules that a policy trains whole.

    Args:
        folder: Where to; made if it does not exist.
        weights: Of a model adapted by ``add_adapters``, by its names; what is neither is left out.
        cfg: The ``actor.model`` section it was adapted with.

    Raises:
        MissingPackageError: ``peft`` or safetensors is not installed.
    """
    peft = require("peft", needed_by="an adapter in the layout of peft")
    safetensors = require("safetensors.torch", needed_by="an adapter in the layout of peft")
    folder.mkdir(parents=True, exist_ok=True)
    whole = cfg.lora_whole_modules if isinstance(cfg, VLAConfig) else ()
    kept = {name: tensor for name, tensor in weights if is_adapter(name) or is_within(name, whole)}
    tensors = {_peft_name(name): tensor.to("cpu").contiguous() for name, tensor in kept.items()}
    safetensors.save_file(tensors, folder / _WEIGHTS[0], metadata={"format": "pt"})
    targets = list(cfg.lora_target_modules)
    if isinstance(cfg, VLAConfig):
        # By their paths, as a name of a layer may occur in a head that is trained whole.
        targets = sorted({adapted_layer(name) for name in kept if is_adapter(name)})
    peft.LoraConfig(
        r=cfg.lora_rank,
        lora_alpha=_alpha(cfg),
        target_modules=targets,
        lora_dropout=0.0,
        base_model_name_or_path=cfg.model_path,
        modules_to_save=[name for name in whole if any(is_within(path, [name]) for path in kept)] or None,
        task_type=None if isinstance(cfg, VLAConfig) else "CAUSAL_LM",
        inference_mode=True,
    ).save_pretrained(folder)


def _alpha(cfg: LoRAKeys) -> float:
    return cfg.lora_rank if cfg.lora_alpha is None else cfg.lora_alpha


def _state_name(name: str) -> str:
    own = name.removeprefix(_PREFIX)
    if not own.endswith((".lora_A.weight", ".lora_B.weight")):
        return own
    module, side, _ = own.rsplit(".", 2)
    return f"{module}.{side}.{ADAPTER}.weight"


def _peft_name(name: str) -> str:
    return _PREFIX + name.replace(f".{ADAPTER}.weight", ".weight")
