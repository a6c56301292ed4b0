"""``metrics.jsonl`` by columns, compactly: a long run has a hundred thousand records."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field
from pathlib import Path

from rlinf.telemetry.report.run_folder import read_line

# Steps beyond are one number to JavaScript.
_MAX_STEP = 1 << 53


@dataclass
class Column:
    """One metric.

    Attributes:
        rows: Numbers of the records that have it.
        values: Its values there; NaN where it was not finite.
    """

    rows: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))


@dataclass
class MetricTable:
    """All records of a run.

    Attributes:
        steps: Step of each record.
        seconds: Time of each record, in seconds since the run began.
        columns: The metrics by name.
        num_unreadable: Lines that are no record, a torn last one apart.
    """

    steps: array[int] = field(default_factory=lambda: array("q"))
    seconds: array[float] = field(default_factory=lambda: array("d"))
    columns: dict[str, Column] = field(default_factory=dict)
    num_unreadable: int = 0

    def wall_seconds(self) -> list[float]:
        """Return the seconds between each record and the one before; for the first, since the run began."""
        before = [0.0, *self.seconds[:-1]]
        return [max(now - then, 0.0) for now, then in zip(self.seconds, before, strict=True)]


def read_metrics(path: Path) -> MetricTable:
    """Read a ``metrics.jsonl``, also one that is cut off or damaged.

    Args:
        path: The file; need not exist.
    """
    table = MetricTable()
    if not path.is_file():
        return table
    with open(path, "rb") as file:
        for line in file:
            record = read_line(line)
            if record is None or not _add(table, record):
                table.num_unreadable += line.endswith(b"\n") and bool(line.strip())
    return table


def _add(table: MetricTable, record: dict[str, object]) -> bool:
    step, seconds = record.pop("step", None), _number(record.pop("time_seconds", None))
    if not isinstance(step, int) or not 0 <= step < _MAX_STEP or seconds is None or not math.isfinite(seconds):
        return False
    row = len(table.steps)
    table.steps.append(step)
    table.seconds.append(seconds)
    for name, entry in record.items():
        value = _number(entry)
        if value is not None:
            column = table.columns.setdefault(name, Column())
            column.rows.append(row)
            column.values.append(value)
    return True


def _number(entry: object) -> float | None:
    """Return an entry as a float, null as NaN; None for what is no number."""
    if entry is None:
        return math.nan
    if isinstance(entry, bool) or not isinstance(entry, (int, float)):
        return None
    try:
        return float(entry)
    except OverflowError:
        return math.nan
