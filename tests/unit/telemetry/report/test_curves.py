"""Curves that a page can hold."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlinf.telemetry.report.curves import describe_curves, points_per_curve, thin
from rlinf.telemetry.report.metric_table import read_metrics
from tests.unit.telemetry.report.report_runs import make_run


def curves_of(folder: Path, max_points: int = 1000) -> dict[str, Any]:
    return describe_curves(read_metrics(folder / "metrics.jsonl"), max_points)


def test_each_metric_is_a_curve_over_its_own_steps(tmp_path: Path) -> None:
    curves = curves_of(make_run(tmp_path, steps=4))
    x, y = curves["series"]["eval/return"]
    assert (curves["xs"][x], y) == ([0, 2, 4], [9.5, 12.0, 14.0])
    x, y = curves["series"]["train/loss"]
    assert (curves["xs"][x], y) == ([1, 2, 3, 4], [1.0, 0.5, 0.333333, 0.25])
    assert curves["latest"]["eval/return"] == 14.0
    assert curves["clock"] == [[0, 1, 2, 3, 4], [0.0, 2.0, 4.0, 6.0, 8.0]]
    assert curves["thinned"] == 0


def test_what_was_not_finite_is_a_gap(tmp_path: Path) -> None:
    curves = curves_of(make_run(tmp_path, steps=2, metrics=lambda step: {"train/loss": [1.0, math.nan, 2.0][step]}))
    assert curves["series"]["train/loss"][1] == [1.0, None, 2.0]


def test_a_long_curve_keeps_its_peaks_and_its_ends(tmp_path: Path) -> None:
    def spiky(step: int) -> dict[str, float]:
        return {"train/loss": 100.0 if step == 317 else -50.0 if step == 318 else 1.0}

    curves = curves_of(make_run(tmp_path, steps=999, metrics=spiky), max_points=50)
    x, y = curves["series"]["train/loss"]
    steps = curves["xs"][x]
    assert len(y) == len(steps) <= 52
    assert (steps[0], steps[-1]) == (0, 999)
    assert {(317, 100.0), (318, -50.0)} <= set(zip(steps, y, strict=True))
    assert steps == sorted(set(steps))
    assert curves["thinned"] == 1


def test_thinning_a_curve_without_a_finite_value() -> None:
    values = np.full(1000, np.nan)
    assert 10 <= len(thin(values, 40)) <= 42
    assert thin(values[:40], 40).tolist() == list(range(40))


@pytest.mark.parametrize(("num_curves", "points"), [(0, 1000), (40, 1000), (1200, 100), (10**6, 50)])
def test_the_more_curves_the_fewer_points(num_curves: int, points: int) -> None:
    assert points_per_curve(num_curves) == points
