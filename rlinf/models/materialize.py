"""Models that are built without memory (device ``meta``), sharded, and only then allocated and filled, row by row."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from rlinf.errors import CheckpointError
from rlinf.models.files.tensor_files import RowSource, abridged
from rlinf.models.trainable import TrainableModel

CHUNK_BYTES = 64 << 20
"""What is read of a tensor at a time, so that loading needs hardly more memory than what is loaded."""


def materialize(model: TrainableModel, device: torch.device, *, weights_device: torch.device | None = None) -> None:
    """Move a model to a device; allocate there what is on device ``meta``, and fill it from ``weight_source``.

    Args:
        model: Whole, or sharded by rows: then each rank reads its rows. Tied parameters stay tied.
        device: Where it will compute.
        weights_device: Where parameters are kept, if elsewhere.

    Raises:
        CheckpointError: A tensor's file is damaged.
    """
    source = model.weight_source
    kept = device if weights_device is None else weights_device
    if source is None or not any(parameter.is_meta for parameter in model.parameters()):
        model.to(device)
        return
    if any(isinstance(module, FSDPModule) for module in model.modules()):
        # As ``Module.to_empty``, which would empty buffers, too.
        apply: Any = model._apply
        apply(lambda tensor: torch.empty_like(tensor, device=kept) if tensor.is_meta else tensor.to(device))
    else:
        allocate(model, kept)
        model.to(device)
    fill(model, source)


def allocate(model: nn.Module, device: torch.device) -> None:
    """Give parameters of a whole model that are on device ``meta`` memory, and no values.

    Args:
        model: Its tied parameters stay tied.
        device: Where the memory is.
    """
    swap: Any = torch.utils.swap_tensors
    for parameter in model.parameters():
        if parameter.is_meta:
            swap(parameter, nn.Parameter(torch.empty_like(parameter, device=device), parameter.requires_grad))


@torch.no_grad()
def fill(model: nn.Module, source: RowSource) -> None:
    """Copy weights into a model, this rank's rows alone.

    Args:
        model: Whole, or sharded by rows.
        source: Has every parameter and buffer of the model's state, in its shape; of tied ones, the first name.
    """
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            _copy_rows(tensor.detach(), name, source)


def require_same_names(model: nn.Module, source: RowSource) -> None:
    """Return if a source holds the model's weights and no others, in their shapes.

    Raises:
        CheckpointError: It does not; the message names what is missing, too much or of another shape.
    """
    found, problems = source.shapes(), []
    state = model.state_dict(keep_vars=True)
    first: dict[int, str] = {}
    for name, tensor in state.items():
        first.setdefault(id(tensor), name)
    missing = [name for name in first.values() if name not in found]
    unexpected = [name for name in found if name not in state]
    wrong = [
        f"{name} has shape {found[name]} instead of {tuple(tensor.shape)}"
        for name, tensor in state.items()
        if name in found and found[name] != tuple(tensor.shape)
    ]
    for names, what in ((missing, "no weights for"), (unexpected, "weights that the model does not have:")):
        if names:
            problems.append(f"{what} {abridged(names)}")
    problems += [abridged(wrong)] if wrong else []
    if problems:
        raise CheckpointError("; ".join(problems))


def _copy_rows(target: torch.Tensor, name: str, source: RowSource) -> None:
    begin, local = 0, target
    if isinstance(target, DTensor):
        _, offset = compute_local_shape_and_global_offset(target.shape, target.device_mesh, target.placements)
        begin, local = offset[0], target.to_local()
    if not local.ndim:
        local.copy_(source.rows(name, 0, 1))
        return
    rows = max(1, CHUNK_BYTES // max(1, local[:1].nbytes))
    for start in range(0, len(local), rows):
        part = local[start : start + rows]
        part.copy_(source.rows(name, begin + start, begin + start + len(part)))
