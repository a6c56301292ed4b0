"""The curves of all metrics, thinned until a page can hold them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlinf.telemetry.report.metric_table import MetricTable
from rlinf.telemetry.report.run_folder import spread

# About 18 bytes each: with the plotting library a page stays below 10 MB.
_MAX_POINTS = 120_000
# More than a screen can show, but for those who zoom in.
_MAX_POINTS_PER_CURVE = 1000
_MIN_POINTS_PER_CURVE = 50
# Points of the line that gives the time of a step; between them it is interpolated.
_MAX_CLOCK_POINTS = 400


def points_per_curve(num_curves: int) -> int:
    """Return how many points each of a page's curves may have."""
    return min(max(_MAX_POINTS // max(num_curves, 1), _MIN_POINTS_PER_CURVE), _MAX_POINTS_PER_CURVE)


def describe_curves(table: MetricTable, max_points: int) -> dict[str, Any]:
    """Return what the page plots as curves.

    Args:
        table: The run's records.
        max_points: Points that a curve may have; of a longer one the lowest and the highest of each stretch are kept.

    Returns:
        ``xs``, lists of steps; ``series``, by name (which of ``xs``, values); ``clock``, (steps, seconds); ``latest``,
        the last value of each metric; ``thinned``, how many curves had more points.
    """
    steps = np.frombuffer(table.steps, dtype=np.int64) if table.steps else np.zeros(0, dtype=np.int64)
    xs: dict[tuple[int, ...], int] = {}
    series: dict[str, tuple[int, list[float | None]]] = {}
    latest: dict[str, float | None] = {}
    thinned = 0
    for name, column in sorted(table.columns.items()):
        rows, values = np.frombuffer(column.rows, dtype=np.int64), np.frombuffer(column.values, dtype=np.float64)
        kept = thin(values, max_points)
        thinned += len(kept) < len(values)
        x = tuple(steps[rows[kept]].tolist())
        series[name] = (xs.setdefault(x, len(xs)), [round_value(value) for value in values[kept].tolist()])
        latest[name] = round_value(column.values[-1])
    clock = spread(range(len(steps)), _MAX_CLOCK_POINTS)
    return {
        "xs": [list(x) for x in xs],
        "series": series,
        "clock": [[table.steps[row] for row in clock], [round(table.seconds[row], 1) for row in clock]],
        "latest": latest,
        "records": len(steps),
        "thinned": thinned,
        "max_points": max_points,
    }


def thin(values: NDArray[np.float64], limit: int) -> NDArray[np.int64]:
    """Choose the points of a curve that show what it does: the lowest and the highest of each stretch.

    Args:
        values: float64 [N].
        limit: Points to keep at most, 4 or more.

    Returns:
        int64 [M]; their indices, rising, the first and the last among them.
    """
    count = len(values)
    if count <= limit:
        return np.arange(count, dtype=np.int64)
    edges = np.linspace(0, count, limit // 2).astype(np.int64)
    kept = {0, count - 1}
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        stretch = values[start:end]
        if np.isfinite(stretch).any():
            kept |= {start + int(np.nanargmin(stretch)), start + int(np.nanargmax(stretch))}
        else:
            kept.add(start)
    return np.array(sorted(kept), dtype=np.int64)


def round_value(value: float) -> float | None:
    """Return a number with six significant digits; None where it is not finite."""
    return float(f"{value:.6g}") if math.isfinite(value) else None
