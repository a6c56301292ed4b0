"""The base of records whose tensors have a batch axis in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch

if TYPE_CHECKING:
    from typing_extensions import Self

RecordT = TypeVar("RecordT", bound="BatchRecord")


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A record of tensors [..., B, ...], of mappings of them, and of lists of ``B`` entries; None stays None."""

    batch_axis: ClassVar[int] = 0
    """Axis of ``B`` in the fields' tensors."""
    batch_axes: ClassVar[Mapping[str, int]] = {}
    """Axes of single fields in which it is another one."""

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Self:
        """Return the record with ``function`` applied to every tensor."""
        return self._each(lambda value, axis: _map(value, function))

    def to(self, device: torch.device | str) -> Self:
        """Return the record on a device."""
        return self.map(lambda tensor: tensor.to(device))

    def select(self, rows: slice | torch.Tensor) -> Self:
        """Return some rows of the batch, in the given order.

        Args:
            rows: A slice, int64 [N] of indices, or bool [B].
        """
        return self._each(lambda value, axis: select_rows(value, rows, axis))

    def rows(self, start: int, stop: int) -> Self:
        """Return rows ``start`` to ``stop`` (exclusive) of the batch."""
        return self.select(slice(start, stop))

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Join records along the batch; see ``concat_records``."""
        return concat_records(parts)

    def _each(self, change: Callable[[Any, int], Any]) -> Self:
        """Return the record with ``change(value, axis)`` for every field."""
        names = [field.name for field in dataclasses.fields(self)]
        return type(self)(**{name: change(getattr(self, name), self.axis_of(name)) for name in names})

    def axis_of(self, name: str) -> int:
        """Return the batch axis of a field's tensors."""
        return self.batch_axes.get(name, self.batch_axis)


def concat_records(parts: Sequence[RecordT]) -> RecordT:
    """Join records along the batch, in the given order; a field that only some of them have is that of those.

    Args:
        parts: One at least, of the same class.
    """
    first = parts[0]
    names = [field.name for field in dataclasses.fields(first)]
    joined = {name: concat_rows([getattr(part, name) for part in parts], first.axis_of(name)) for name in names}
    return type(first)(**joined)


def select_rows(value: Any, rows: slice | torch.Tensor, axis: int = 0) -> Any:
    """Return some rows of a tensor, of a mapping of tensors, or of a list.

    Args:
        value: Tensors [..., B, ...], or lists of ``B`` entries; None stays None.
        rows: See ``BatchRecord.select``.
        axis: Of ``B``.
    """
    if isinstance(value, torch.Tensor):
        return value[(slice(None),) * axis + (rows,)]
    if isinstance(value, Mapping):
        return {key: select_rows(part, rows, axis) for key, part in value.items()}
    if isinstance(value, list):
        if isinstance(rows, slice):
            return value[rows]
        chosen = rows.nonzero().flatten() if rows.dtype == torch.bool else rows
        return [value[index] for index in chosen.tolist()]
    return value


def concat_rows(values: Sequence[Any], axis: int = 0) -> Any:
    """Join what ``select_rows`` takes apart.

    Args:
        values: Of the same kind; None entries are left out.
        axis: Of the batch.
    """
    present = [value for value in values if value is not None]
    if not present:
        return None
    if isinstance(present[0], torch.Tensor):
        return torch.cat(present, axis)
    if isinstance(present[0], Mapping):
        return {key: concat_rows([value[key] for value in present], axis) for key in present[0]}
    return [entry for value in present for entry in value]


def _map(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return {key: _map(part, function) for key, part in value.items()}
    return value
