"""Reads torch's distributed checkpoint format without running code that a checkpoint may hold.

torch unpickles the file ``.metadata`` and everything that is not a tensor without restriction. Here the metadata may
name what describes tensors and files and nothing else, and other values are read by ``torch.load(weights_only=True)``.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as layout
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, create_default_local_load_plan
from torch.distributed.checkpoint.filesystem import FileSystemReader, _StorageInfo
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import (
    LoadPlan,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.serialization import _get_layout

from rlinf.errors import CheckpointError

_CLASSES = (
    layout.Metadata,
    layout.MetadataIndex,
    layout.StorageMeta,
    layout.TensorProperties,
    layout.TensorStorageMetadata,
    layout.BytesStorageMetadata,
    layout.ChunkStorageMetadata,
    layout._MEM_FORMAT_ENCODING,
    _StorageInfo,
    OrderedDict,
    _get_layout,
    # Megatron-LM keeps its plan of writing there.
    SavePlan,
    WriteItem,
    WriteItemType,
    TensorWriteData,
)
_ALLOWED: dict[tuple[str, str], Any] = {
    **{(part.__module__, part.__qualname__): part for part in _CLASSES},
    ("torch", "Size"): torch.Size,
    **{("torch", name): value for name, value in vars(torch).items() if isinstance(value, torch.dtype)},
    # The module's name depends on the version of Python that wrote the checkpoint.
    ("pathlib", "PosixPath"): PurePosixPath,
    ("pathlib._local", "PosixPath"): PurePosixPath,
}
"""What ``.metadata`` may name, by module and name."""


class SafeReader(FileSystemReader):
    """Reads checkpoints whose metadata is nothing but metadata.

    Args:
        path: The checkpoint's folder.

    Raises:
        CheckpointError: The file ``.metadata`` in it holds anything else, or is damaged.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        # At once: torch answers an error in reading it by looking for another file.
        self.found = read_metadata(path / ".metadata")

    def read_metadata(self, *args: Any, **kwargs: Any) -> layout.Metadata:
        """Return what the file ``.metadata`` holds."""
        self.found.storage_meta = self.found.storage_meta or layout.StorageMeta()
        self.found.storage_meta.load_id = self.load_id
        return self.found


class SafePlanner(DefaultLoadPlanner):
    """Fills a flat mapping; takes over values only where they are numbers, strings, and collections of them."""

    def set_up_planner(self, state_dict: Any, metadata: Any = None, is_coordinator: bool = False) -> None:
        """Take a mapping of names to objects with torch's checkpointable protocol, and to other values."""
        self.state_dict, self.metadata, self.is_coordinator = state_dict, metadata, is_coordinator

    def create_local_plan(self) -> LoadPlan:
        """Return what is to be read.

        Raises:
            RuntimeError: A name is not in the checkpoint.
            ValueError: A tensor has another shape there, or is none.
        """
        assert self.metadata is not None
        stored = self.metadata.state_dict_metadata
        for name, wanted in self.state_dict.items():
            if hasattr(wanted, "__create_chunk_list__") and isinstance(stored.get(name), layout.BytesStorageMetadata):
                raise ValueError(f"{name} is no tensor.")
        return create_default_local_load_plan(self.state_dict, self.metadata)

    def lookup_tensor(self, index: MetadataIndex) -> torch.Tensor:
        """Return what is filled."""
        chunk: torch.Tensor = self.state_dict[index.fqn].__get_tensor_shard__(index)
        return chunk

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Take over one value that is not a tensor.

        Raises:
            CheckpointError: It is something else, or is damaged.
        """
        name = read_item.dest_index.fqn
        try:
            self.state_dict[name] = torch.load(value, weights_only=True)
        except Exception as error:
            raise refusal(f"the value '{name}'", error) from error


def read_metadata(path: Path) -> layout.Metadata:
    """Unpickle the metadata of a distributed checkpoint, and nothing that runs code.

    Args:
        path: The file ``.metadata``.

    Raises:
        CheckpointError: The file names something that is no metadata, or is damaged.
    """
    try:
        with open(path, "rb") as file:
            found = _MetadataUnpickler(file).load()
    except Exception as error:
        # A damaged pickle makes the unpickler raise almost anything.
        raise refusal(f"'{path}'", error) from error
    if not isinstance(found, layout.Metadata):
        raise refusal(f"'{path}'", TypeError(f"it holds a {type(found).__name__}"))
    return found


def refusal(what: str, error: BaseException) -> CheckpointError:
    """Return the error for a part of a checkpoint that could run code, or is damaged."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return CheckpointError(
        f"{what[0].upper()}{what[1:]} of the checkpoint is not loaded: {reason}. It is "
        "damaged, or holds more than numbers and text, which could run code: do not use it, or ask its author for a "
        ".safetensors file."
    )


class _MetadataUnpickler(pickle.Unpickler):
    """Knows the names in ``_ALLOWED`` and no others."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what an allowed name stands for."""
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which is no part of a checkpoint's metadata")
        return _ALLOWED[module, name]
