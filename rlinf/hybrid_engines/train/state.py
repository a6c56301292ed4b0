"""Training state of a model and its optimizers as a checkpoint (see ``chunks``), and loading of bare weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rlinf.errors import CheckpointError
from rlinf.hybrid_engines.train.chunks import (
    OWN_RECIPE,
    ChunkedTensor,
    State,
    moment_key,
    read_state,
    stored_tensors,
    value_key,
    weight_key,
)
from rlinf.hybrid_engines.train.safe_reader import refusal
from rlinf.models.files.tensor_files import TensorFiles
from rlinf.models.materialize import fill, require_same_names
from rlinf.models.trainable import TrainableModel

FileNames = Mapping[str, list[list[str]]]
"""See ``TrainableModel.file_names``."""


def load(
    path: Path, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], extra: dict[str, Any]
) -> dict[str, Any]:
    """Read a ``training_state``, resharded as needed. Settings of the optimizers (``lr``) stay as they are.

    Args:
        path: The folder.
        model: Filled in place.
        optimizers: Their moments are filled in place.
        extra: Names the further values to read.

    Returns:
        The values read for ``extra``.

    Raises:
        CheckpointError: The folder does not hold such a state, or that of another model.
    """
    values = read_state(path, training_state(model, optimizers, extra, file_names=names_in(path, model)))
    return {name: values[value_key(name)] for name in extra}


def load_weights(path: Path, model: nn.Module) -> None:
    """Read weights alone from a checkpoint folder, a ``.pt`` or a ``.safetensors`` file; each rank reads its rows.

    Raises:
        CheckpointError: Nothing usable is there, or names and shapes do not match the model.
    """
    if path.is_dir():
        folder = path / "actor" if (path / "actor").is_dir() else path
        read_state(folder, training_state(model, [], {}, file_names=names_in(folder, model)))
        return
    if not path.is_file():
        raise CheckpointError(f"No weights at '{path}'. Give a checkpoint folder (global_step_N), .pt or .safetensors.")
    try:
        weights = TensorFiles([path])
    except CheckpointError as error:
        raise refusal(f"the file '{path}'", error.__cause__ or error) from error
    try:
        require_same_names(model, weights)
    except CheckpointError as error:
        raise CheckpointError(
            f"The weights in '{path}' do not fit actor.model: {error}. They are another recipe's. {OWN_RECIPE}"
        ) from error
    fill(model, weights)


def training_state(
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    extra: dict[str, Any],
    *,
    file_names: FileNames | None = None,
) -> State:
    """Return what a checkpoint holds, sharing the memory of model and optimizers.

    Args:
        model: Whole, or sharded by rows; of tied parameters the first name counts.
        optimizers: Of its parameters; moments that do not exist before the first step are made.
        extra: Further values by name.
        file_names: Of tensors that are not called by their own names; None is ``TrainableModel.file_names``.
    """
    if file_names is None:
        file_names = model.file_names() if isinstance(model, TrainableModel) else {}
    tensors: dict[str, torch.Tensor] = model.state_dict(keep_vars=True)
    names: dict[int, str] = {}
    for name, tensor in tensors.items():
        names.setdefault(id(tensor), name)
    state: State = {}
    for name in names.values():
        for part, chunks in _parts(name, tensors[name], file_names).items():
            state[weight_key(part)] = chunks
    for optimizer in optimizers:
        for parameter in (parameter for group in optimizer.param_groups for parameter in group["params"]):
            for moment, value in _moments(optimizer, parameter).items():
                for part, chunks in _parts(names[id(parameter)], value, file_names).items():
                    state[moment_key(part, moment)] = chunks
    return state | {value_key(name): value for name, value in extra.items()}


def names_in(path: Path, model: nn.Module) -> FileNames:
    """Return the names in a checkpoint; former ones hold some tensors under the model's own names."""
    if not isinstance(model, TrainableModel):
        return {}
    names = model.file_names()
    stored = stored_tensors(path) if names else {}
    return {name: columns for name, columns in names.items() if weight_key(name) not in stored}


def _parts(name: str, tensor: torch.Tensor, file_names: FileNames) -> dict[str, ChunkedTensor]:
    """Return what a tensor consists of, by the names in files; of stacked experts those that this rank holds."""
    columns = file_names.get(name, [[name]])
    chunks = ChunkedTensor.of(tensor)
    if len(columns) == 1 and len(columns[0]) == 1:
        return {columns[0][0]: chunks}
    if not tensor.ndim:  # the count of steps, which is that of every expert
        return {part: chunks for column in columns for part in column}
    found = {}
    for offsets, held in chunks.chunks.items():
        for index, expert in enumerate(held, offsets[0]):
            for column, slice_ in zip(columns, expert.chunk(len(columns)), strict=True):
                found[column[index]] = ChunkedTensor.of(slice_)
    return found


def _moments(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> dict[str, torch.Tensor]:
    """Return what AdamW keeps of a parameter, which it would make in its first step."""
    state: dict[str, torch.Tensor] = optimizer.state[parameter]
    if not state:
        device = parameter.device if optimizer.defaults["fused"] else None
        state["step"] = torch.tensor(0.0, device=device)
        state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
    return state
