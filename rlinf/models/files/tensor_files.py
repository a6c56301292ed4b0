"""Tensors in files, read by rows: a rank that holds a shard reads the shard and nothing else."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import safe_open

from rlinf.errors import CheckpointError

_SINGLE = ("model.safetensors", "pytorch_model.bin")
_INDEX = tuple(f"{name}.index.json" for name in _SINGLE)


class RowSource(Protocol):
    """Named tensors of which parts can be read."""

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of every tensor, by name."""

    def rows(self, name: str, begin: int, end: int) -> torch.Tensor:
        """Return rows ``begin`` to ``end`` of a tensor, on the host; all of one without dimensions."""


class TensorFiles:
    """The tensors of ``.safetensors`` and ``.pt`` files; files are mapped into memory, not read.

    Attributes:
        files: The names in each file, in its order.

    Args:
        files: Tensors with the names that they have in the files, each in one of them.

    Raises:
        CheckpointError: A file is missing or damaged.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._readers: dict[str, Any] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self.files: dict[Path, list[str]] = {path: [] for path in files}
        for path in files:
            try:
                self._open(path)
            except Exception as error:
                # A damaged file makes its reader raise almost anything.
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                raise CheckpointError(
                    f"The weights in '{path}' cannot be read: {reason}. Download or write the file again."
                ) from error

    @classmethod
    def of_folder(cls, folder: Path) -> TensorFiles:
        """Open the weights of a Hugging Face checkpoint, in one file or as its index says.

        Args:
            folder: The checkpoint's.

        Raises:
            CheckpointError: It holds no weights, or a file of the index is missing or damaged.
        """
        for single, index in zip(_SINGLE, _INDEX, strict=True):
            if (folder / single).is_file():
                return cls([folder / single])
            if (folder / index).is_file():
                names = set(json.loads((folder / index).read_text(encoding="utf-8"))["weight_map"].values())
                return cls([folder / name for name in sorted(names)])
        raise CheckpointError(f"'{folder}' holds no weights: none of {', '.join((*_SINGLE, *_INDEX))} is there.")

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of every tensor, by name."""
        return self._shapes

    def rows(self, name: str, begin: int, end: int) -> torch.Tensor:
        """Return rows ``begin`` to ``end`` of a tensor, on the host; all of one without dimensions."""
        reader = self._readers[name]
        if isinstance(reader, torch.Tensor):
            return reader[begin:end] if reader.ndim else reader
        found: torch.Tensor = reader.get_slice(name)[begin:end] if self._shapes[name] else reader.get_tensor(name)
        return found

    def whole(self, name: str) -> torch.Tensor:
        """Return a tensor, on the host."""
        return self.rows(name, 0, next(iter(self._shapes[name]), 1))

    def dtype(self, name: str) -> torch.dtype:
        """Return the type of a tensor."""
        return self.rows(name, 0, 0).dtype

    def _open(self, path: Path) -> None:
        if path.suffix == ".safetensors":
            reader: Any = safe_open(path, framework="pt")
            for name in reader.keys():  # noqa: SIM118 - it is no mapping
                self._readers[name] = reader
                self.files[path].append(name)
                self._shapes[name] = tuple(reader.get_slice(name).get_shape())
            return
        can_map = zipfile.is_zipfile(path)
        for name, tensor in torch.load(path, map_location="cpu", mmap=can_map, weights_only=True).items():
            self._readers[name] = tensor
            self.files[path].append(name)
            self._shapes[name] = tuple(tensor.shape)


def abridged(names: list[str], limit: int = 5) -> str:
    """Return names as a list in a sentence, and how many more there are."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(sorted(names)[:limit]) + more
