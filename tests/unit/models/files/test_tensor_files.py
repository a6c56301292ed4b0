"""Files of tensors are read by rows, whatever their kind, and damaged ones are refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from rlinf.errors import CheckpointError
from rlinf.models.files.tensor_files import TensorFiles, abridged

TENSORS = {"matrix": torch.arange(12.0).view(4, 3), "vector": torch.arange(5), "number": torch.tensor(7.0)}


@pytest.mark.parametrize("kind", ["a.safetensors", "a.pt", "old.pt"])
def test_rows_are_those_of_the_tensor(tmp_path: Path, kind: str) -> None:
    path = tmp_path / kind
    if kind == "a.safetensors":
        save_file(TENSORS, path)
    else:
        torch.save(TENSORS, path, _use_new_zipfile_serialization=kind != "old.pt")
    files = TensorFiles([path])
    assert files.shapes() == {"matrix": (4, 3), "vector": (5,), "number": ()}
    assert torch.equal(files.rows("matrix", 1, 3), TENSORS["matrix"][1:3])
    assert torch.equal(files.rows("vector", 2, 9), TENSORS["vector"][2:])
    assert torch.equal(files.rows("number", 0, 1), TENSORS["number"])


@pytest.mark.parametrize("name", ["a.safetensors", "a.pt", "absent.safetensors"])
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    if not name.startswith("absent"):
        (tmp_path / name).write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match=f"{name}' cannot be read"):
        TensorFiles([tmp_path / name])


def test_long_lists_are_cut_short() -> None:
    assert abridged(["b", "a"]) == "a, b"
    assert abridged([f"n{i}" for i in range(7)]) == "n0, n1, n2, n3, n4 and 2 more"
