"""Weights on the disk, of checkpoints and of Hugging Face folders alike, read and written one tensor at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from torch.distributed.checkpoint.metadata import MetadataIndex

from rlinf.errors import CheckpointError
from rlinf.hybrid_engines.train.chunks import (
    Chunk,
    ChunkedTensor,
    read_state,
    stored_tensors,
    weight_key,
    write_state,
)
from rlinf.models.files.peft_folder import PeftAdapter
from rlinf.models.files.tensor_files import TensorFiles, abridged
from rlinf.models.lora import adapted_layer, adapter_names, is_adapter, unadapted_name

_PREFIX = weight_key("")
_VALUE_HEAD = "value_head."


class StoredWeights:
    """Named tensors on the disk.

    Args:
        described: Shapes and types by name, on device ``meta``.
        read: Returns a tensor, on the host.
    """

    def __init__(self, described: Mapping[str, torch.Tensor], read: Callable[[str], torch.Tensor]) -> None:
        self.described, self.read = dict(described), read

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield names and tensors, one at a time."""
        for name in self.described:
            yield name, self.read(name)


def open_weights(path: Path) -> StoredWeights:
    """Open the weights of a checkpoint (``global_step_N`` or its ``actor``), a Hugging Face folder or a file.

    Args:
        path: Folder, or a ``.safetensors`` or ``.pt`` file.

    Raises:
        CheckpointError: There are none, or they are damaged.
    """
    folder = checkpoint_folder(path)
    if folder is not None:
        keys = {name: t for name, t in stored_tensors(folder).items() if name.startswith(_PREFIX)}
        return StoredWeights(
            {name.removeprefix(_PREFIX): tensor for name, tensor in keys.items()},
            lambda name: _read(folder, weight_key(name), keys[weight_key(name)]),
        )
    if not path.exists():
        raise CheckpointError(f"There is nothing at '{path}'. Name a checkpoint, a Hugging Face folder or a file.")
    files = TensorFiles([path]) if path.is_file() else TensorFiles.of_folder(path)
    shapes = files.shapes()
    types = {name: files.rows(name, 0, 0).dtype for name in shapes}
    described = {name: torch.empty(shape, dtype=types[name], device="meta") for name, shape in shapes.items()}
    return StoredWeights(described, lambda name: files.rows(name, 0, next(iter(shapes[name]), 1)))


def checkpoint_folder(path: Path) -> Path | None:
    """Return the folder of a checkpoint that holds the actor's state; None if the path is no checkpoint."""
    return next((folder for folder in (path / "actor", path) if (folder / ".metadata").is_file()), None)


def as_adapter(adapter: PeftAdapter) -> StoredWeights:
    """Return the tensors of an adapter."""
    shapes = adapter.shapes().items()
    return StoredWeights({name: torch.empty(shape, device="meta") for name, shape in shapes}, adapter.tensor)


def with_adapter(weights: StoredWeights, adapter: StoredWeights, scaling: float) -> StoredWeights:
    """Return weights under the names they had before they were adapted, products of an adapter added to them.

    Args:
        weights: Of a model, adapted or not; its own adapters are left out.
        adapter: By the names of a model adapted by ``add_adapters``; anything else in it is left out.
        scaling: Of the products.

    Raises:
        CheckpointError: The adapter is of another model.
    """
    names = {unadapted_name(name): name for name in weights.described if not is_adapter(name)}
    pairs = {f"{adapted_layer(name)}.weight" for name in adapter.described if is_adapter(name)}
    unknown = sorted(pairs - names.keys())
    if unknown:
        raise CheckpointError(f"The adapter is of another model: there are no weights {abridged(unknown)}.")

    def read(name: str) -> torch.Tensor:
        tensor = weights.read(names[name])
        if name not in pairs:
            return tensor
        a, b = (adapter.read(side) for side in adapter_names(name.removesuffix(".weight")))
        return torch.addmm(tensor.float(), b.float(), a.float(), alpha=scaling).to(tensor.dtype)

    return StoredWeights({name: weights.described[stored] for name, stored in names.items()}, read)


def of_model(weights: StoredWeights, dtype: torch.dtype | None) -> StoredWeights:
    """Return what inference needs of the weights, in a precision.

    Args:
        weights: Of a model; its value head is left out.
        dtype: Of floating-point tensors; None leaves them as they are.
    """
    kept = {name: tensor for name, tensor in weights.described.items() if not name.startswith(_VALUE_HEAD)}
    if dtype is None:
        return StoredWeights(kept, weights.read)

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    return StoredWeights({name: cast(tensor) for name, tensor in kept.items()}, lambda name: cast(weights.read(name)))


def write_weights(folder: Path, weights: StoredWeights) -> None:
    """Write a checkpoint of weights alone, which ``runner.ckpt_path`` takes.

    Args:
        folder: Where to; made here.
        weights: Read one at a time.

    Raises:
        CheckpointError: It cannot be written.
    """
    write_state(folder, {weight_key(name): _Unread(name, t, weights.read) for name, t in weights.described.items()})


def _read(folder: Path, key: str, described: torch.Tensor) -> torch.Tensor:
    tensor = torch.empty_like(described, device="cpu")
    read_state(folder, {key: ChunkedTensor.of(tensor)})
    return tensor


class _Unread(ChunkedTensor):
    """A whole tensor that is read when it is written."""

    def __init__(self, name: str, described: torch.Tensor, read: Callable[[str], torch.Tensor]) -> None:
        super().__init__(described.shape, [Chunk((0,) * described.ndim, described)])
        self._name, self._read = name, read

    def __get_tensor_shard__(self, index: MetadataIndex) -> torch.Tensor:
        return self._read(self._name)
