"""Records of metrics: one for each step, kept over kills and resumes."""

import math
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest
from logged_rows import Clock, FakeService, full_disk, make, rows

from rlinf.cli.errors import run_and_report
from rlinf.errors import MetricError


def test_metrics_that_do_not_fit_on_the_disk_are_an_error_with_the_files_name_and_what_to_do(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def log() -> None:
        logger = make(tmp_path)
        logger.log({f"train/{number}": 1.0 for number in range(100)}, 1)
        with full_disk(100):
            try:
                logger.commit(1)
            finally:
                logger.finish(failed=True)

    assert run_and_report(log) == 1
    error = capfd.readouterr().err
    assert str(tmp_path / "metrics.jsonl") in error
    assert "Free some space" in error
    assert "runner.logger.log_path" in error


def test_one_flat_record_a_step_names_sorted(tmp_path: Path) -> None:
    clock = Clock()
    logger = make(tmp_path, clock=clock)
    clock.now += 1.5
    logger.log({"train/loss": 1.0, "env/return": 2}, 1)
    logger.log({"eval/return": 3.0}, 1)
    logger.commit(1)
    assert list(rows(tmp_path)[0].items()) == [
        ("step", 1),
        ("time_seconds", 1.5),
        ("env/return", 2.0),
        ("eval/return", 3.0),
        ("train/loss", 1.0),
    ]


def test_a_later_step_or_finish_writes_what_is_pending(tmp_path: Path) -> None:
    logger = make(tmp_path)
    logger.log({"a": 1.0}, 0)
    assert rows(tmp_path) == []
    logger.log({"a": 2.0}, 1)
    assert [row["step"] for row in rows(tmp_path)] == [0]
    logger.finish()
    logger.finish()
    assert [row["step"] for row in rows(tmp_path)] == [0, 1]


def test_committed_records_survive_a_kill(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        logger = make(tmp_path)
        for step in (1, 2):
            logger.log({"a": float(step)}, step)
            logger.commit(step)
        os._exit(0)
    os.waitpid(pid, 0)
    assert [row["a"] for row in rows(tmp_path)] == [1.0, 2.0]


def test_values_that_are_not_finite_are_null(tmp_path: Path) -> None:
    with make(tmp_path) as logger:
        logger.log({"a": math.nan, "b": math.inf, "c": -math.inf, "d": 0.0}, 1)
    row = rows(tmp_path)[0]
    assert [row[name] for name in "abcd"] == [None, None, None, 0.0]


def test_steps_that_are_written_or_older_are_refused(tmp_path: Path) -> None:
    logger = make(tmp_path)
    logger.log({"a": 1.0}, 3)
    with pytest.raises(MetricError, match="step 2"):
        logger.log({"a": 1.0}, 2)
    logger.commit(3)
    for step in (2, 3):
        with pytest.raises(MetricError, match=f"step {step}"):
            logger.log({"b": 1.0}, step)
    logger.finish()
    with pytest.raises(MetricError, match="finish"):
        logger.log({"a": 1.0}, 4)
    assert [row["step"] for row in rows(tmp_path)] == [3]


@pytest.mark.parametrize(("name", "value"), [("step", 1.0), ("time_seconds", 1.0), ("a", "text"), ("a", None)])
def test_reserved_names_and_what_is_no_number_are_refused(tmp_path: Path, name: str, value: float | str | None) -> None:
    logger = make(tmp_path)
    with pytest.raises(MetricError, match=name):
        logger.log({name: value}, 1)


def test_resume_cuts_back_to_the_step_drops_a_torn_line_and_time_goes_on(tmp_path: Path) -> None:
    clock = Clock()
    logger = make(tmp_path, clock=clock)
    for step in range(1, 6):
        clock.now += 10
        logger.log({"a": float(step)}, step)
        logger.commit(step)
    logger.finish()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 6, "time_se')
    clock.now += 5000
    logger = make(tmp_path, resume_step=3, clock=clock)
    assert [row["step"] for row in rows(tmp_path)] == [1, 2, 3]
    with pytest.raises(MetricError, match="step 2"):
        logger.log({"a": 1.0}, 2)
    clock.now += 10
    logger.log({"a": 44.0}, 4)
    logger.finish()
    assert rows(tmp_path)[-1] == {"step": 4, "time_seconds": 40.0, "a": 44.0}


def test_evaluating_the_resumed_step_again_adds_to_its_record_once(tmp_path: Path) -> None:
    with make(tmp_path) as logger:
        for step in (1, 2, 3):
            logger.log({"train/loss": float(step), "eval/return": 1.0, "eval/bad": math.nan}, step)
    with make(tmp_path, resume_step=2) as logger:
        logger.log({"eval/return": 5.0}, 2)
        logger.commit(2)
        with pytest.raises(MetricError, match="step 2"):
            logger.log({"eval/return": 6.0}, 2)
        logger.log({"train/loss": 30.0}, 3)
    records = [{name: row[name] for name in row if name != "time_seconds"} for row in rows(tmp_path)]
    assert records == [
        {"step": 1, "eval/bad": None, "eval/return": 1.0, "train/loss": 1.0},
        {"step": 2, "eval/bad": None, "eval/return": 5.0, "train/loss": 2.0},
        {"step": 3, "train/loss": 30.0},
    ]


def test_without_resume_the_records_start_anew(tmp_path: Path) -> None:
    with make(tmp_path) as logger:
        logger.log({"a": 1.0}, 1)
    with make(tmp_path) as logger:
        logger.log({"a": 2.0}, 1)
    assert [row["a"] for row in rows(tmp_path)] == [2.0]


def test_a_damaged_line_in_the_middle_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "time_seconds": 0}\nrubbish\n{"step": 2, "time_seconds": 0}\n')
    with pytest.raises(MetricError, match="line 2"):
        make(tmp_path, resume_step=2)
    assert "rubbish" in (tmp_path / "metrics.jsonl").read_text()


def test_a_run_that_ends_by_an_error_is_marked_and_everything_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb, swanlab = FakeService("wandb"), FakeService("swanlab")
    monkeypatch.setenv("WANDB_API_KEY", "of-nobody")
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "swanlab", swanlab)

    def fail(**_kwargs: Any) -> NoReturn:
        raise ConnectionError("offline")

    monkeypatch.setattr(wandb, "finish", fail)
    logger = make(tmp_path, ["wandb", "swanlab"])
    logger.log({"a": 1.0}, 1)
    with pytest.raises(ConnectionError):
        logger.__exit__(ValueError, ValueError(), None)
    assert swanlab.finished[0]["state"] == "crashed"
    assert [row["step"] for row in rows(tmp_path)] == [1]
