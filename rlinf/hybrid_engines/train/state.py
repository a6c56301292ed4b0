"""Training state of a model and its optimizers as a checkpoint (see ``chunks``), and loading of bare weights."""

from __future__ import annotations

from collections.abc import Sequence
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
    value_key,
    weight_key,
)
from rlinf.hybrid_engines.train.safe_reader import refusal
from rlinf.models.materialize import fill, require_same_names
from rlinf.models.tensor_files import TensorFiles


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
    values = read_state(path, training_state(model, optimizers, extra))
    return {name: values[value_key(name)] for name in extra}


def load_weights(path: Path, model: nn.Module) -> None:
    """Read weights alone from a checkpoint folder, a ``.pt`` or a ``.safetensors`` file; each rank reads its rows.

    Raises:
        CheckpointError: Nothing usable is there, or names and shapes do not match the model.
    """
    if path.is_dir():
        read_state(path / "actor" if (path / "actor").is_dir() else path, training_state(model, [], {}))
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


def training_state(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], extra: dict[str, Any]) -> State:
    """Return what a checkpoint holds, sharing the memory of model and optimizers.

    Args:
        model: Whole, or sharded by rows; of tied parameters the first name counts.
        optimizers: Of its parameters; moments that do not exist before the first step are made.
        extra: Further values by name.
    """
    tensors: dict[str, torch.Tensor] = model.state_dict(keep_vars=True)
    names: dict[int, str] = {}
    for name, tensor in tensors.items():
        names.setdefault(id(tensor), name)
    state: State = {weight_key(name): ChunkedTensor.of(tensors[name]) for name in names.values()}
    for optimizer in optimizers:
        for parameter in (parameter for group in optimizer.param_groups for parameter in group["params"]):
            for moment, value in _moments(optimizer, parameter).items():
                state[moment_key(names[id(parameter)], moment)] = ChunkedTensor.of(value)
    return state | {value_key(name): value for name, value in extra.items()}


def _moments(optimizer: torch.optim.Optimizer, parameter: nn.Parameter) -> dict[str, torch.Tensor]:
    """Return what AdamW keeps of a parameter, which it would make in its first step."""
    state: dict[str, torch.Tensor] = optimizer.state[parameter]
    if not state:
        device = parameter.device if optimizer.defaults["fused"] else None
        state["step"] = torch.tensor(0.0, device=device)
        state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
    return state
