"""Nested state in one file: arrays and tensors as safetensors, everything else as JSON; reading it runs no code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from rlinf.errors import CheckpointError
from rlinf.utils.files import fsync_path

_TREE = "tree"
_ARRAY = "__array__"
_TENSOR = "__tensor__"


def save_tree(path: Path, tree: Any) -> None:
    """Write nested mappings, lists and tuples of tensors, arrays, numbers, strings and None, and flush them.

    Args:
        path: The file; its folder is made.
        tree: Keys of mappings are strings. Arrays are of numbers.

    Raises:
        CheckpointError: Something else is in it.
    """
    tensors: dict[str, torch.Tensor] = {}
    text = json.dumps(_flatten(tree, tensors, "state"))
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, metadata={_TREE: text})
    fsync_path(path)


def load_tree(path: Path) -> Any:
    """Return what ``save_tree`` wrote, tensors on the CPU; tuples have become lists.

    Args:
        path: The file.

    Raises:
        CheckpointError: It cannot be read.
        FileNotFoundError: It does not exist.
    """
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            return _rebuild(json.loads(file.metadata()[_TREE]), tensors)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}; resume from another checkpoint") from error


def _flatten(value: Any, tensors: dict[str, torch.Tensor], place: str) -> Any:
    """Return a value for JSON, in which a name stands for each array and tensor."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping) and all(isinstance(key, str) and key not in {_ARRAY, _TENSOR} for key in value):
        return {key: _flatten(part, tensors, f"{place}.{key}") for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_flatten(part, tensors, f"{place}.{number}") for number, part in enumerate(value)]
    name = str(len(tensors))
    if isinstance(value, torch.Tensor):
        # The format has no tensors that share memory.
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {_TENSOR: name}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        tensors[name] = torch.from_numpy(np.array(value))
        return {_ARRAY: name}
    kind = f"array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    raise CheckpointError(f"{place} is a {kind}; state to save holds tensors, arrays of numbers, numbers and strings")


def _rebuild(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if isinstance(value, list):
        return [_rebuild(part, tensors) for part in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {_TENSOR}:
        return tensors[value[_TENSOR]]
    if value.keys() == {_ARRAY}:
        return tensors[value[_ARRAY]].numpy()
    return {key: _rebuild(part, tensors) for key, part in value.items()}
