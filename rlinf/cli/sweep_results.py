"""What the runs of a sweep reached: their last metrics, and a table with intervals over seeds."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rlinf.utils.files import write_atomic

SWEEP_FILE = "sweep.json"
_METRICS_FILE = "metrics.jsonl"
_OBJECTIVES = ("eval/success_once", "eval/return", "eval/accuracy", "eval/pass@1", "env/success_once", "env/return")
"""Metrics that runs are compared by, the first that they have; higher is better."""
_SEEDS = ("actor.seed", "env.train.seed", "data.seed")
# Student's t, 97.5 %, by degrees of freedom from 1 on; beyond the table the normal's is at most 2 % smaller.
_STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_NORMAL = 1.96


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """A run of a sweep.

    Attributes:
        choice: Its overrides besides those that all points share.
        folder: The run's folder.
        exit_code: Of its process.
        metrics: The last finite value of each metric.
    """

    choice: list[str]
    folder: str
    exit_code: int
    metrics: dict[str, float]

    @property
    def failed(self) -> bool:
        """Whether its process has failed."""
        return self.exit_code != 0


def point_name(choice: Sequence[str]) -> str:
    """Return the folder's name of a point: its overrides, without what folders must not have in their names."""
    return re.sub(r"[^\w.=,+-]+", "_", ",".join(choice)).strip("._") or "point"


def final_metrics(folder: Path) -> dict[str, float]:
    """Return the last finite value of each metric of a run; empty if it has logged none."""
    file = folder / _METRICS_FILE
    final: dict[str, float] = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # the last line of a run that was killed
        final |= {name: value for name, value in row.items() if value is not None}
    return final


def write_sweep(folder: Path, points: Sequence[SweepPoint]) -> None:
    """Write ``sweep.json``: the points that have run."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / SWEEP_FILE, json.dumps([asdict(point) for point in points], indent=1) + "\n")


def pick_metric(points: Sequence[SweepPoint], name: str | None) -> str | None:
    """Return the metric that points are compared by.

    Args:
        points: Points that have run.
        name: The metric that was requested; None takes the first of a list that a point has.
    """
    if name is not None:
        return name
    return next((known for known in _OBJECTIVES if any(known in point.metrics for point in points)), None)


def student_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and half the width of its 95 % interval by Student's t; NaN for the width of one value."""
    count = len(values)
    mean = sum(values) / count
    if count < 2:
        return mean, math.nan
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1))
    quantile = _STUDENT[count - 2] if count - 2 < len(_STUDENT) else _NORMAL
    return mean, quantile * spread / math.sqrt(count)


def sweep_table(points: Sequence[SweepPoint], metric: str | None = None) -> list[str]:
    """Return a table: a row for each combination of values, seeds taken together.

    Args:
        points: Points that have run.
        metric: What they are compared by; None chooses.

    Returns:
        Its lines: settings, number of runs, the mean of the last values with its 95 % interval, and each of them.
    """
    name = pick_metric(points, metric)
    groups: dict[tuple[str, ...], list[SweepPoint]] = {}
    for point in points:
        settings = tuple(text for text in point.choice if text.partition("=")[0].lstrip("+") not in _SEEDS)
        groups.setdefault(settings, []).append(point)
    rows = [("setting", "runs", f"{name or 'metric'} (95 % interval)", "each run")]
    for settings, members in groups.items():
        values = [p.metrics[name] for p in members if not p.failed and name is not None and name in p.metrics]
        failed = sum(point.failed for point in members)
        count = f"{len(members)}" + (f" ({failed} failed)" if failed else "")
        rows.append((" ".join(settings) or "all", count, _mean_text(values), ", ".join(f"{v:.4g}" for v in values)))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _mean_text(values: Sequence[float]) -> str:
    if not values:
        return "-"
    mean, margin = student_interval(values)
    return f"{mean:.4g}" if math.isnan(margin) else f"{mean:.4g} ± {margin:.2g}"
