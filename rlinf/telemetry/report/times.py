"""Where the time of steps goes, by phases of the loop and by worker groups, from the metrics under ``time/``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlinf.telemetry.report.metric_table import MetricTable
from rlinf.telemetry.trace import PHASE_PREFIX

# Beyond this number of steps, each bar is the mean of several.
_MAX_BARS = 100
# What stands under time/ and is no duration.
_OTHER_UNITS = ("per_second", "memory", "mfu", "restarts")
# Timers within which others run: what these leave of them is shown as "other".
_OUTER = ("interact", "generate", "evaluate")
_INNER = ("env_step", "wait_for_actions", "infer", "wait_for_envs")
_REST, _IDLE = "other", "idle"

_Matrix = dict[str, NDArray[np.float64]]


def describe_times(table: MetricTable) -> dict[str, Any] | None:
    """Return what the page plots about time; None where no step has been timed.

    Returns:
        ``labels`` of the bars; ``steps_per_bar``; ``views``: for the loop and for each worker group its ``parts``
        (seconds a bar) and their ``means`` over all steps.
    """
    timed = table.columns.get("time/step")
    if timed is None or not timed.rows:
        return None
    rows = np.frombuffer(timed.rows, dtype=np.int64)
    wall = np.array(table.wall_seconds())[rows]
    views = {name: _with_rest(parts, wall, name) for name, parts in _by_owner(table, rows).items()}
    edges = np.linspace(0, len(rows), min(len(rows), _MAX_BARS) + 1).astype(np.int64)
    steps = np.frombuffer(table.steps, dtype=np.int64)[rows]
    return {
        "labels": [int(steps[end - 1]) for end in edges[1:].tolist()],
        "steps_per_bar": -(-len(rows) // _MAX_BARS),
        "views": [
            {
                "name": name,
                "parts": {part: _bars(values, edges) for part, values in parts.items()},
                "means": {part: round(float(values.mean()), 4) for part, values in parts.items()},
            }
            for name, parts in views.items()
        ],
    }


def _by_owner(table: MetricTable, rows: NDArray[np.int64]) -> dict[str, _Matrix]:
    """Return the seconds of each part at the timed records: of the loop first, then by worker group."""
    place = {int(row): index for index, row in enumerate(rows.tolist())}
    views: dict[str, _Matrix] = {"loop": {}}
    for name, column in sorted(table.columns.items()):
        owner, _, part = name.removeprefix("time/").partition("/")
        if not name.startswith("time/") or not part or any(unit in part for unit in _OTHER_UNITS):
            continue
        values = np.zeros(len(rows))
        for row, value in zip(column.rows, column.values, strict=True):
            if row in place and np.isfinite(value):
                values[place[row]] = value
        views.setdefault("loop" if name.startswith(PHASE_PREFIX) else owner, {})[part] = values
    return {name: parts for name, parts in views.items() if parts}


def _with_rest(parts: _Matrix, wall: NDArray[np.float64], owner: str) -> _Matrix:
    """Make parts that can be stacked: without the timers that hold others, with what is left of these and of the step.

    Args:
        parts: Seconds [N] of each part.
        wall: Seconds [N] of each step, from its record to the one before.
        owner: ``loop`` or a group.
    """
    stacked = {name: values for name, values in parts.items() if name not in _OUTER}
    zero = np.zeros(len(wall))
    inner = sum((values for name, values in parts.items() if name in _INNER), zero)
    outer = sum((values for name, values in parts.items() if name in _OUTER), zero)
    rest = np.maximum(outer - inner, 0.0)
    total = sum(stacked.values(), zero)
    if outer.any():
        stacked[_REST] = rest
        total = total + rest
    # The loop never idles: what no phase covers is between them.
    stacked[_REST if owner == "loop" else _IDLE] = np.maximum(wall - total, 0.0)
    return stacked


def _bars(values: NDArray[np.float64], edges: NDArray[np.int64]) -> list[float]:
    return [round(float(values[start:end].mean()), 4) for start, end in zip(edges[:-1], edges[1:], strict=True)]
