"""Low-rank adapters in the folders of ``peft``: ``adapter_config.json`` and ``adapter_model.safetensors``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from rlinf.config.schema.model import CausalLMConfig
from rlinf.errors import CheckpointError, ConfigError
from rlinf.models.files.tensor_files import TensorFiles, abridged
from rlinf.models.lora import ADAPTER, is_adapter
from rlinf.utils.optional import require

ADAPTER_FOLDER = "adapter"
"""Of a checkpoint."""
_CONFIG, _WEIGHTS = "adapter_config.json", ("adapter_model.safetensors", "adapter_model.bin")
_PREFIX = "base_model.model."
_PLAIN = {"peft_type": "LORA", "bias": "none"}
_UNKNOWN = ("use_rslora", "use_dora", "modules_to_save", "rank_pattern", "alpha_pattern", "layer_replication")


class PeftAdapter:
    """The low-rank adapter in a folder of ``peft``, by the names of a model adapted by ``add_adapters``.

    Attributes:
        rank: Of the adapters.
        alpha: Their output is multiplied by this over ``rank``.

    Args:
        folder: Of the adapter.

    Raises:
        CheckpointError: It holds none, or one that does more than add products of two matrices.
    """

    def __init__(self, folder: Path) -> None:
        try:
            config: dict[str, Any] = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CheckpointError(f"'{folder}' holds no adapter of peft: {_CONFIG} cannot be read ({error})") from error
        found = {key: config[key] for key, plain in _PLAIN.items() if config.get(key, plain) != plain}
        found |= {key: config[key] for key in _UNKNOWN if config.get(key)}
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


def open_adapter(cfg: CausalLMConfig, shapes: Mapping[str, tuple[int, ...]]) -> PeftAdapter | None:
    """Return the adapter that ``actor.model.lora_path`` names; None if it names none.

    Args:
        cfg: The ``actor.model`` section.
        shapes: Of the adapted model's tensors, by name.

    Raises:
        ConfigError: The folder holds no adapter, or one of another shape.
    """
    if cfg.lora_path is None or not cfg.is_lora:
        return None
    try:
        adapter = PeftAdapter(Path(cfg.lora_path).expanduser())
    except CheckpointError as error:
        raise ConfigError(f"actor.model.lora_path: {error}") from error
    if (adapter.rank, adapter.alpha) != (cfg.lora_rank, _alpha(cfg)):
        raise ConfigError(
            f"actor.model.lora_path: the adapter in '{cfg.lora_path}' has rank {adapter.rank} and alpha "
            f"{adapter.alpha:g}; set actor.model.lora_rank={adapter.rank} actor.model.lora_alpha={adapter.alpha:g}."
        )
    wanted = {name: shape for name, shape in shapes.items() if is_adapter(name)}
    different = sorted(name for name, _ in wanted.items() ^ adapter.shapes().items())
    if different:
        raise ConfigError(
            f"actor.model.lora_path: the adapter in '{cfg.lora_path}' and this model with "
            f"actor.model.lora_target_modules={cfg.lora_target_modules} differ in {abridged(different)}. Set the keys "
            "as the adapter was trained."
        )
    return adapter


def write_adapter(folder: Path, weights: Iterable[tuple[str, torch.Tensor]], cfg: CausalLMConfig) -> None:
    """Write an adapter as ``peft`` loads it.

    Args:
        folder: Where to; made if it does not exist.
        weights: Of a model adapted by ``add_adapters``, by its names; what is no adapter is left out.
        cfg: The ``actor.model`` section it was adapted with.

    Raises:
        MissingPackageError: ``peft`` or safetensors is not installed.
    """
    peft = require("peft", needed_by="an adapter in the layout of peft")
    safetensors = require("safetensors.torch", needed_by="an adapter in the layout of peft")
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {_peft_name(name): tensor.to("cpu").contiguous() for name, tensor in weights if is_adapter(name)}
    safetensors.save_file(tensors, folder / _WEIGHTS[0], metadata={"format": "pt"})
    peft.LoraConfig(
        r=cfg.lora_rank,
        lora_alpha=_alpha(cfg),
        target_modules=list(cfg.lora_target_modules),
        lora_dropout=0.0,
        base_model_name_or_path=cfg.model_path,
        task_type="CAUSAL_LM",
        inference_mode=True,
    ).save_pretrained(folder)


def _alpha(cfg: CausalLMConfig) -> float:
    return cfg.lora_rank if cfg.lora_alpha is None else cfg.lora_alpha


def _state_name(name: str) -> str:
    module, side, _ = name.removeprefix(_PREFIX).rsplit(".", 2)
    return f"{module}.{side}.{ADAPTER}.weight"


def _peft_name(name: str) -> str:
    return _PREFIX + name.replace(f".{ADAPTER}.weight", ".weight")
