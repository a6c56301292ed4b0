"""Training state on disk: torch's distributed checkpoint format, and loading of bare weights."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from rlinf.errors import CheckpointError
from rlinf.hybrid_engines.train.safe_reader import SafePlanner, SafeReader, refusal
from rlinf.models.materialize import fill, require_same_names
from rlinf.models.tensor_files import TensorFiles

# No checkpoint fits into less; what did not fit has been written in part.
_FULL_BYTES = 1 << 20
_OWN_RECIPE = (
    "Give a checkpoint of this recipe, or run the recipe that it is of: config.yaml in the folder of its experiment."
)


def save(path: Path, model: nn.Module, optimizers: list[torch.optim.Optimizer], extra: dict[str, Any]) -> None:
    """Write model, optimizers and ``extra`` under the folder ``path``; called by all ranks together.

    Raises:
        CheckpointError: They cannot be written; the disk is full, say.
    """
    model_state, optimizer_state = get_state_dict(model, optimizers)
    try:
        dcp_save({"model": model_state, "optimizer": optimizer_state, "extra": extra}, checkpoint_id=str(path))
    except (CheckpointException, OSError) as error:
        raise CheckpointError(f"The checkpoint in '{path}' cannot be written: {_reason(path, error)}") from error


def load(
    path: Path, model: nn.Module, optimizers: list[torch.optim.Optimizer], extra: dict[str, Any]
) -> dict[str, Any]:
    """Read what ``save`` wrote, resharded as needed.

    Args:
        path: The folder.
        model: Filled in place.
        optimizers: Filled in place.
        extra: Names the further values to read.

    Returns:
        The values read for ``extra``.

    Raises:
        CheckpointError: The folder does not hold such a state, or that of another model.
    """
    _require_dcp(path)
    model_state, optimizer_state = get_state_dict(model, optimizers)
    content: dict[str, Any] = {"model": model_state, "optimizer": optimizer_state, "extra": extra}
    _read(path, content)
    set_state_dict(model, optimizers, model_state_dict=content["model"], optim_state_dict=content["optimizer"])
    result: dict[str, Any] = content["extra"]
    return result


def load_weights(path: Path, model: nn.Module) -> None:
    """Read weights alone from a checkpoint folder, a ``.pt`` or a ``.safetensors`` file; each rank reads its rows.

    Raises:
        CheckpointError: Nothing usable is there, or names and shapes do not match the model.
    """
    if path.is_dir():
        folder = path / "actor" if (path / "actor").is_dir() else path
        _require_dcp(folder)
        content = {"model": get_model_state_dict(model)}
        _read(folder, content)
        set_model_state_dict(model, content["model"])
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
            f"The weights in '{path}' do not fit actor.model: {error}. They are another recipe's. {_OWN_RECIPE}"
        ) from error
    fill(model, weights)


def _reason(path: Path, error: BaseException) -> str:
    """Return the last line of an error of torch; where the disk is full, that, which its writer does not report."""
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    if shutil.disk_usage(existing).free < _FULL_BYTES:
        return f"{os.strerror(errno.ENOSPC)}."
    return str(error).strip().splitlines()[-1]


def _refusal_within(error: BaseException) -> CheckpointError | None:
    """Return the refusal of a part of the checkpoint, by whichever rank, that torch has wrapped."""
    if not isinstance(error, CheckpointException):
        return None
    found = (failure for failure, _ in error.failures.values() if isinstance(failure, CheckpointError))
    return next(found, None)


def _require_dcp(path: Path) -> None:
    if not (path / ".metadata").is_file():
        raise CheckpointError(f"'{path}' holds no distributed checkpoint (no .metadata file in it).")


def _read(path: Path, content: dict[str, Any]) -> None:
    reader = SafeReader(path)
    try:
        dcp_load(content, storage_reader=reader, planner=SafePlanner())
    except (CheckpointException, RuntimeError, ValueError) as error:
        refused = _refusal_within(error)
        if refused is not None:
            raise refused from error
        reason = str(error).strip().splitlines()[-1]
        raise CheckpointError(
            f"The checkpoint in '{path}' does not fit this recipe's model and optimizer: {reason} {_OWN_RECIPE}"
        ) from error
