"""What is written tensor by tensor is what safetensors and transformers load."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rlinf.models.files.tensor_writer import write_tensor_files

Named = list[tuple[str, torch.Tensor]]
TENSORS: Named = [
    ("a.weight", torch.arange(12.0).view(3, 4)),
    ("b", torch.tensor(2.5, dtype=torch.bfloat16)),
    ("c.bias", torch.arange(5)),
    ("d", torch.tensor([True, False, True])),
    ("e", torch.zeros(0, 3, dtype=torch.float16)),
    ("f", torch.arange(8.0).view(2, 4).t()),
]


def described(tensors: Named) -> Named:
    return [(name, torch.empty(t.shape, dtype=t.dtype, device="meta")) for name, t in tensors]


@pytest.mark.parametrize("max_bytes", [10**9, 60, 1])
def test_files_hold_the_tensors_and_the_index_says_where(tmp_path: Path, max_bytes: int) -> None:
    write_tensor_files(tmp_path / "new", described(TENSORS), iter(TENSORS), max_file_bytes=max_bytes)
    files = sorted((tmp_path / "new").glob("*.safetensors"))
    found = {name: tensor for file in files for name, tensor in load_file(file).items()}
    assert found.keys() == dict(TENSORS).keys()
    for name, tensor in TENSORS:
        assert torch.equal(found[name], tensor), name
        assert found[name].dtype == tensor.dtype
    index = tmp_path / "new" / "model.safetensors.index.json"
    if max_bytes == 10**9:
        assert [file.name for file in files] == ["model.safetensors"]
        assert not index.exists()
        return
    assert files[0].name == f"model-00001-of-{len(files):05}.safetensors"
    content = json.loads(index.read_text())
    assert content["metadata"]["total_size"] == sum(tensor.nbytes for _, tensor in TENSORS)
    for name in dict(TENSORS):
        assert name in load_file(tmp_path / "new" / content["weight_map"][name])
    for file in files:
        sizes = [tensor.nbytes for tensor in load_file(file).values()]
        assert sum(sizes) <= max_bytes or sum(map(bool, sizes)) == 1


def test_each_tensor_is_taken_when_the_one_before_it_is_written(tmp_path: Path) -> None:
    written = []

    def tensors() -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in TENSORS:
            written.append(sum(file.stat().st_size for file in tmp_path.glob("*.safetensors")))
            yield name, tensor

    write_tensor_files(tmp_path, described(TENSORS), tensors(), max_file_bytes=1)
    assert written == sorted(written)
    assert written[0] == 0 < written[2]


@pytest.mark.parametrize("wrong", [("a.weight", torch.zeros(4, 3)), ("x", torch.zeros(3, 4))])
def test_tensors_that_are_not_those_described_are_an_error(tmp_path: Path, wrong: tuple[str, torch.Tensor]) -> None:
    with pytest.raises(ValueError, match="as described"):
        write_tensor_files(tmp_path, described(TENSORS[:1]), [wrong])
    with pytest.raises(ValueError, match="shorter"):
        write_tensor_files(tmp_path, described(TENSORS[:2]), TENSORS[:1])
