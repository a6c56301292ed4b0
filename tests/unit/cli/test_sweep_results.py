"""The table of a sweep: runs that differ by their seeds alone are one row, with an interval."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from rlinf.cli.sweep_results import (
    SweepPoint,
    final_metrics,
    pick_metric,
    point_name,
    student_interval,
    sweep_table,
    write_sweep,
)


def point(*choice: str, code: int = 0, **metrics: float) -> SweepPoint:
    return SweepPoint(list(choice), "/runs", code, {name.replace("_", "/"): value for name, value in metrics.items()})


def test_the_interval_is_students() -> None:
    # 1, 2, 3: standard deviation 1, t(2) = 4.303; of one value nothing is known.
    assert student_interval([1.0, 2.0, 3.0]) == pytest.approx((2.0, 4.303 / math.sqrt(3)))
    assert student_interval([1.0, 3.0]) == pytest.approx((2.0, 12.706))
    mean, margin = student_interval([5.0])
    assert (mean, math.isnan(margin)) == (5.0, True)
    mean, margin = student_interval([0.0, 2.0] * 50)
    assert margin == pytest.approx(1.96 * 1.005 / 10, rel=1e-3)


def test_seeds_are_taken_together_and_settings_are_rows() -> None:
    points = [
        point("actor.optim.lr=0.1", "actor.seed=1", eval_return=10.0),
        point("actor.optim.lr=0.1", "actor.seed=2", eval_return=30.0),
        point("actor.optim.lr=0.2", "actor.seed=1", eval_return=5.0),
        point("actor.optim.lr=0.2", "actor.seed=2", code=1, eval_return=99.0),
    ]
    header, first, second = sweep_table(points)
    assert "eval/return (95 % interval)" in header
    assert first.split() == ["actor.optim.lr=0.1", "2", "20", "±", "1.3e+02", "10,", "30"]
    assert second.split() == ["actor.optim.lr=0.2", "2", "(1", "failed)", "5", "5"]


def test_success_is_compared_before_return_unless_another_metric_is_named() -> None:
    points = [
        SweepPoint(["a=1"], "/runs", 0, {"eval/return": 3.0}),
        SweepPoint(["a=2"], "/runs", 0, {"eval/return": 4.0, "eval/success_once": 0.5}),
    ]
    assert pick_metric(points, None) == "eval/success_once"
    assert pick_metric(points, "eval/return") == "eval/return"
    assert pick_metric([], None) is None
    assert sweep_table(points, "eval/return")[1].split() == ["a=1", "1", "3", "3"]


def test_the_last_finite_value_of_each_metric_counts(tmp_path: Path) -> None:
    rows = [{"step": 1, "eval/return": 1.0, "x": 2.0}, {"step": 2, "eval/return": None, "x": 3.0}]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)) + '\n{"step": 3, "x')
    assert final_metrics(tmp_path) == {"step": 2, "eval/return": 1.0, "x": 3.0}
    assert final_metrics(tmp_path / "absent") == {}


def test_names_of_folders_have_no_special_characters() -> None:
    assert point_name(["actor.seed=1", "actor.optim.lr=3e-4"]) == "actor.seed=1,actor.optim.lr=3e-4"
    assert point_name(["env@env.train=gym_pendulum", "+a='x/../y z'"]) == "env_env.train=gym_pendulum,+a=_x_.._y_z"
    assert point_name([]) == "point"


def test_points_are_recorded(tmp_path: Path) -> None:
    write_sweep(tmp_path / "new", [point("a=1", x=2.0)])
    (record,) = json.loads((tmp_path / "new" / "sweep.json").read_text())
    assert record == {"choice": ["a=1"], "folder": "/runs", "exit_code": 0, "metrics": {"x": 2.0}}
