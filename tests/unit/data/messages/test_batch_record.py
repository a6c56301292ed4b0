"""Records are cut, joined and moved along the batch axis of each of their fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch

from rlinf.data.messages.batch_record import BatchRecord, select_rows


@dataclass(frozen=True, slots=True)
class Record(BatchRecord):
    batch_axis: ClassVar[int] = 1
    batch_axes: ClassVar[Mapping[str, int]] = {"ids": 0, "names": 0}

    seen: dict[str, torch.Tensor]
    ids: torch.Tensor
    names: list[str]
    values: torch.Tensor | None = None


def record(first: int = 0, count: int = 4, *, values: bool = True) -> Record:
    numbers = torch.arange(first, first + count)
    rows = numbers.expand(3, -1)
    return Record({"states": rows + 0.5}, numbers, [f"row {i}" for i in numbers], rows if values else None)


def numbers(of: Record) -> dict[str, Any]:
    """Return the rows of every field by the numbers that they were made with."""
    return {
        "seen": of.seen["states"][2].int().tolist(),
        "ids": of.ids.tolist(),
        "names": [int(name.split()[1]) for name in of.names],
        "values": None if of.values is None else of.values[2].tolist(),
    }


def all_are(rows: list[int]) -> dict[str, Any]:
    return dict.fromkeys(("seen", "ids", "names", "values"), rows)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (slice(1, 3), [1, 2]),
        (torch.tensor([3, 0, 3]), [3, 0, 3]),
        (torch.tensor([False, True, False, True]), [1, 3]),
    ],
    ids=["slice", "indices", "mask"],
)
def test_rows_are_selected_in_every_field(rows: slice | torch.Tensor, expected: list[int]) -> None:
    assert numbers(record().select(rows)) == all_are(expected)


def test_concat_undoes_rows() -> None:
    whole = record()
    assert numbers(Record.concat([whole.rows(0, 1), whole.rows(1, 4)])) == all_are([0, 1, 2, 3])


def test_a_field_that_some_records_lack_is_that_of_the_others() -> None:
    joined = Record.concat([record(values=False), record(4, 2)])
    assert numbers(joined) == all_are([0, 1, 2, 3, 4, 5]) | {"values": [4, 5]}
    assert Record.concat([record(values=False), record(4, 2, values=False)]).values is None


def test_every_tensor_is_moved() -> None:
    moved = record().to("meta")
    assert moved.values is not None
    assert {tensor.device.type for tensor in (moved.seen["states"], moved.ids, moved.values)} == {"meta"}
    assert moved.names == record().names


def test_none_has_no_rows() -> None:
    assert select_rows(None, slice(0, 1)) is None
