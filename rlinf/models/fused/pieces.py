"""Blocks of Hugging Face tensors, and the rows of fused tensors that hold them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from rlinf.errors import ConfigError
from rlinf.models.files.tensor_files import RowSource, abridged

CHUNK_BYTES = 64 << 20
"""What is read of a tensor at a time."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A block of a Hugging Face tensor that lies in consecutive rows of a fused one.

    Attributes:
        name: Of the Hugging Face tensor.
        offsets: Where the block begins, one entry for each dimension.
        sizes: Its extent, one entry for each dimension.
        begin: First row of the fused tensor that holds it.
        end: The row after the last.
    """

    name: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    begin: int
    end: int

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.sizes)

    def of_fused(self, fused: torch.Tensor) -> torch.Tensor:
        """Return the block as it lies in the fused tensor, in the shape ``sizes``, sharing memory."""
        return fused[self.begin : self.end].view(self.sizes)


def block_of(whole: torch.Tensor, piece: Piece) -> torch.Tensor:
    """Return the block of a whole Hugging Face tensor that a piece is, sharing memory."""
    for dim, (offset, size) in enumerate(zip(piece.offsets, piece.sizes, strict=True)):
        whole = whole.narrow(dim, offset, size)
    return whole


def fill_fused(fused: torch.Tensor, pieces: Iterable[Piece], source: RowSource) -> None:
    """Copy the pieces of a fused tensor from files, reading no more than ``CHUNK_BYTES`` at a time.

    Args:
        fused: Changed in place; rows that no piece covers become 0.
        pieces: What it consists of.
        source: Has the Hugging Face tensors.
    """
    fused.zero_()
    for piece in pieces:
        target = piece.of_fused(fused)
        row_bytes = math.prod(source.shapes()[piece.name][1:]) * target.element_size()
        step = max(1, CHUNK_BYTES // max(1, row_bytes))
        for start in range(0, len(target), step):
            part = target[start : start + step]
            first = piece.offsets[0] + start
            rows = source.rows(piece.name, first, first + len(part))
            within = Piece(piece.name, (0, *piece.offsets[1:]), tuple(part.shape), 0, 0)
            part.copy_(block_of(rows, within))


def check_coverage(pieces: Iterable[Piece], shapes: Mapping[str, Sequence[int]]) -> None:
    """Return if pieces hold every element of every tensor exactly once.

    Args:
        pieces: Of all ranks, copies left out.
        shapes: The model's tensors.

    Raises:
        ConfigError: A tensor is not covered, covered twice, or not the model's; the message lists them.
    """
    found: dict[str, int] = {}
    for piece in pieces:
        found[piece.name] = found.get(piece.name, 0) + piece.numel
    wrong = [name for name, shape in shapes.items() if found.get(name, 0) != math.prod(shape)]
    wrong += [name for name in found if name not in shapes]
    if wrong:
        raise ConfigError(
            f"actor.model.model_path: no rule says how {abridged(wrong)} is fused or split over ranks. Train this "
            "model with actor.training_backend=fsdp."
        )
