"""Where the time of steps goes."""

from pathlib import Path
from typing import Any

import pytest

from rlinf.telemetry.report.metric_table import read_metrics
from rlinf.telemetry.report.times import describe_times
from tests.unit.telemetry.report.report_runs import make_run, some_metrics


def times_of(folder: Path) -> tuple[dict[str, Any] | None, dict[Any, Any]]:
    times = describe_times(read_metrics(folder / "metrics.jsonl"))
    return times, {view["name"]: view for view in times["views"]}


def test_phases_and_what_is_between_them_add_up_to_the_clock(tmp_path: Path) -> None:
    times, views = times_of(make_run(tmp_path, steps=3))
    assert times["labels"] == [1, 2, 3]
    assert times["views"][0]["name"] == "loop"
    loop = views["loop"]["parts"]
    assert set(loop) == {"rollout", "training", "sync_weights", "other"}
    # A record every two seconds; the phases take 1.6 of them.
    assert [sum(part) for part in zip(*loop.values(), strict=True)] == pytest.approx([2.0, 2.0, 2.0])
    assert views["loop"]["means"]["other"] == pytest.approx(0.4)


def test_a_timer_that_holds_others_is_shown_by_what_they_leave(tmp_path: Path) -> None:
    _, views = times_of(make_run(tmp_path))
    assert views["env"]["means"] == pytest.approx(
        {"env_step": 0.6, "wait_for_actions": 0.2, "other": 0.1, "idle": 1.1}, abs=1e-4
    )


def test_only_durations_are_parts_of_a_group(tmp_path: Path) -> None:
    _, views = times_of(make_run(tmp_path))
    assert set(views) == {"loop", "actor", "env"}
    assert set(views["actor"]["means"]) == {"training", "idle"}


def test_parts_longer_than_the_step_leave_no_idle_time(tmp_path: Path) -> None:
    _, views = times_of(make_run(tmp_path, metrics=lambda step: some_metrics(step) | {"time/actor/training": 5.0}))
    assert views["actor"]["means"]["idle"] == 0.0


def test_a_long_run_has_a_bounded_number_of_bars_that_are_means(tmp_path: Path) -> None:
    times, views = times_of(make_run(tmp_path, steps=1000))
    assert len(times["labels"]) == 100
    assert times["steps_per_bar"] == 10
    assert times["labels"][-1] == 1000
    assert views["loop"]["parts"]["rollout"] == [1.0] * 100


def test_a_run_without_timed_steps_has_none(tmp_path: Path) -> None:
    assert describe_times(read_metrics(make_run(tmp_path, steps=0) / "metrics.jsonl")) is None
