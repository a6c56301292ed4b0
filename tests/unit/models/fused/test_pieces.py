"""Pieces are read from files as little by little as wanted, and padding stays 0."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from rlinf.models.fused import Piece, fill_fused, pieces


class Counting:
    """A source that notes how many elements are read at a time."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.most = tensor, 0

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {"a": tuple(self.tensor.shape)}

    def rows(self, name: str, begin: int, end: int) -> torch.Tensor:
        assert name == "a"
        found = self.tensor[begin:end]
        self.most = max(self.most, found.numel())
        return found


def test_blocks_are_filled_by_rows_and_padding_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "CHUNK_BYTES", 2 * 6 * 4)
    source = Counting(torch.arange(60.0).view(10, 6))
    fused = torch.full((8, 3), 7.0)
    fill_fused(fused, [Piece("a", (1, 3), (5, 3), 1, 6)], source)
    expected = torch.zeros(8, 3)
    expected[1:6] = source.tensor[1:6, 3:6]
    assert torch.equal(fused, expected)
    assert source.most == 2 * 6


def test_experts_are_read_one_by_one() -> None:
    source = Counting(torch.arange(48.0).view(3, 4, 4))
    fused = torch.empty(2, 4)
    fill_fused(fused, [Piece("a", (2, 1, 0), (1, 2, 4), 0, 2)], source)
    assert torch.equal(fused, source.tensor[2, 1:3])
