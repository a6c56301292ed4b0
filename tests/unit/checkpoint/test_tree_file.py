"""Nested state comes back from its file as it was, and nothing but data is ever read."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from rlinf.checkpoint.tree_file import load_tree, save_tree
from rlinf.errors import CheckpointError


def test_what_is_saved_comes_back_with_types_and_bits(tmp_path: Any) -> None:
    shared = torch.arange(6.0)
    tree = {
        "arrays": [np.array([[1.5, math.nan]]), np.zeros((2, 0), np.int64), np.array([True]), np.float32(0.1)],
        "tensors": {"half": torch.tensor([0.1], dtype=torch.bfloat16), "bytes": torch.zeros(2, 3, dtype=torch.uint8)},
        "views": [shared[:3], shared, shared.view(2, 3).T],
        "rest": {"text": ["a", ""], "none": None, "best": -math.inf, "is": True, "count": 2**60},
    }
    save_tree(tmp_path / "env" / "rank_0000.safetensors", tree)
    loaded = load_tree(tmp_path / "env" / "rank_0000.safetensors")
    assert loaded["rest"] == tree["rest"]
    for one, other in zip(loaded["arrays"][:3], tree["arrays"][:3], strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    assert loaded["arrays"][3] == np.float32(0.1)
    for name, tensor in tree["tensors"].items():
        assert loaded["tensors"][name].dtype == tensor.dtype
        assert torch.equal(loaded["tensors"][name], tensor)
    assert all(torch.equal(one, other) for one, other in zip(loaded["views"], tree["views"], strict=True))


@pytest.mark.parametrize("value", [object(), {1: 2}, {"__array__": "0"}, np.array(["text"]), np.array([None])])
def test_what_cannot_be_saved_is_named_by_its_place(tmp_path: Any, value: Any) -> None:
    with pytest.raises(CheckpointError, match=r"state\.wrappers\.1 is a"):
        save_tree(tmp_path / "file", {"wrappers": [{}, value]})


def test_a_damaged_file_is_an_error_with_its_path(tmp_path: Any) -> None:
    path = tmp_path / "rank_0000.safetensors"
    save_tree(path, {"a": np.zeros(100)})
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match="rank_0000"):
        load_tree(path)
