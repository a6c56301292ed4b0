"""Weights of checkpoints, folders and files are read and written one at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from rlinf.errors import CheckpointError
from rlinf.hybrid_engines.train.chunks import ChunkedTensor, State, moment_key, value_key, weight_key, write_state
from rlinf.hybrid_engines.train.weight_files import StoredWeights, open_weights, write_weights

TENSORS = {
    "w": torch.arange(6.0).view(2, 3),
    "scale": torch.tensor(3.0),
    "half": torch.arange(4.0).bfloat16(),
    "count": torch.tensor([1, 2]),
}


def check(found: StoredWeights) -> None:
    assert found.described.keys() == TENSORS.keys()
    for name, tensor in found:
        assert torch.equal(tensor, TENSORS[name])
        assert tensor.dtype == TENSORS[name].dtype == found.described[name].dtype
        assert tensor.shape == found.described[name].shape
        assert found.described[name].is_meta


def test_weights_of_every_kind_of_place_are_the_same(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "model.safetensors")
    torch.save(TENSORS, tmp_path / "weights.pt")
    content: State = {weight_key(name): ChunkedTensor.of(tensor) for name, tensor in TENSORS.items()}
    content |= {moment_key("w", "exp_avg"): ChunkedTensor.of(torch.ones(2, 3)), value_key("num_steps"): 1}
    write_state(tmp_path / "global_step_1" / "actor", content)
    places = ("model.safetensors", "weights.pt", ".", "global_step_1", "global_step_1/actor")
    for place in places:
        check(open_weights(tmp_path / place))


def test_what_is_written_is_read_once_tensor_after_tensor(tmp_path: Path) -> None:
    taken = []

    def read(name: str) -> torch.Tensor:
        taken.append(name)
        return TENSORS[name]

    described = {name: torch.empty(t.shape, dtype=t.dtype, device="meta") for name, t in TENSORS.items()}
    write_weights(tmp_path / "new", StoredWeights(described, read))
    assert sorted(taken) == sorted(TENSORS)
    check(open_weights(tmp_path / "new"))


def test_a_place_without_weights_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="There is nothing at"):
        open_weights(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="holds no weights"):
        open_weights(tmp_path)
