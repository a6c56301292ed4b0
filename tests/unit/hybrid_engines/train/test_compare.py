"""Differences of weights are found by name, shape and value."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from safetensors.torch import save_file

from rlinf.hybrid_engines.train.chunks import ChunkedTensor, weight_key, write_state
from rlinf.hybrid_engines.train.compare import compare_weights


def test_the_largest_difference_of_each_tensor_is_found(tmp_path: Path) -> None:
    one = {"same": torch.ones(3), "near": torch.tensor([1.0, 2.0]), "gone": torch.ones(1), "empty": torch.ones(0)}
    other = {"same": torch.ones(3), "near": torch.tensor([1.0, 2.5]), "new": torch.ones(1), "empty": torch.ones(0)}
    one |= {"shape": torch.ones(2, 3), "odd": torch.tensor([math.nan, math.inf]), "bad": torch.ones(2)}
    other |= {"shape": torch.ones(3, 2), "odd": torch.tensor([math.nan, math.inf])}
    other |= {"bad": torch.tensor([1.0, math.nan])}
    save_file(one, tmp_path / "one.safetensors")
    write_state(tmp_path / "other", {weight_key(name): ChunkedTensor.of(t) for name, t in other.items()})
    found = compare_weights(tmp_path / "one.safetensors", tmp_path / "other")
    assert found.differences == {"same": 0.0, "near": 0.5, "empty": 0.0, "odd": 0.0, "bad": math.inf}
    assert found.largest == math.inf
    gone, new, shape = found.problems
    assert gone == f"Only in {tmp_path / 'one.safetensors'}: gone"
    assert new == f"Only in {tmp_path / 'other'}: new"
    assert shape.startswith("shape has shape (2, 3) in")
