import json
import math
import os
import resource
import sys
import types
from contextlib import contextmanager

import pytest

from rlinf.cli.errors import run_and_report
from rlinf.config.schema.runner import LoggerConfig
from rlinf.errors import ConfigError, MetricError, MissingPackageError
from rlinf.telemetry import MetricLogger
from rlinf.telemetry.events import EventLog


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def rows(folder):
    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@contextmanager
def full_disk(num_bytes):
    """A disk on which a file may have so many bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def make(folder, backends=(), **kwargs):
    return MetricLogger(folder, LoggerConfig(logger_backends=list(backends), experiment_name="exp"), **kwargs)


def test_metrics_that_do_not_fit_on_the_disk_are_an_error_with_the_files_name_and_what_to_do(tmp_path, capfd):
    def log():
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


def test_an_event_that_does_not_fit_on_the_disk_names_its_file(tmp_path):
    with full_disk(100), pytest.raises(OSError, match="events.jsonl"):
        EventLog(tmp_path).add("note", "x" * 1000)


def test_one_flat_record_a_step_names_sorted(tmp_path):
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


def test_a_later_step_or_finish_writes_what_is_pending(tmp_path):
    logger = make(tmp_path)
    logger.log({"a": 1.0}, 0)
    assert rows(tmp_path) == []
    logger.log({"a": 2.0}, 1)
    assert [row["step"] for row in rows(tmp_path)] == [0]
    logger.finish()
    logger.finish()
    assert [row["step"] for row in rows(tmp_path)] == [0, 1]


def test_committed_records_survive_a_kill(tmp_path):
    pid = os.fork()
    if pid == 0:
        logger = make(tmp_path)
        for step in (1, 2):
            logger.log({"a": float(step)}, step)
            logger.commit(step)
        os._exit(0)
    os.waitpid(pid, 0)
    assert [row["a"] for row in rows(tmp_path)] == [1.0, 2.0]


def test_values_that_are_not_finite_are_null(tmp_path):
    with make(tmp_path) as logger:
        logger.log({"a": math.nan, "b": math.inf, "c": -math.inf, "d": 0.0}, 1)
    row = rows(tmp_path)[0]
    assert [row[name] for name in "abcd"] == [None, None, None, 0.0]


def test_steps_that_are_written_or_older_are_refused(tmp_path):
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
def test_reserved_names_and_what_is_no_number_are_refused(tmp_path, name, value):
    logger = make(tmp_path)
    with pytest.raises(MetricError, match=name):
        logger.log({name: value}, 1)


def test_resume_cuts_back_to_the_step_drops_a_torn_line_and_time_goes_on(tmp_path):
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


def test_evaluating_the_resumed_step_again_adds_to_its_record_once(tmp_path):
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


def test_without_resume_the_records_start_anew(tmp_path):
    with make(tmp_path) as logger:
        logger.log({"a": 1.0}, 1)
    with make(tmp_path) as logger:
        logger.log({"a": 2.0}, 1)
    assert [row["a"] for row in rows(tmp_path)] == [2.0]


def test_a_damaged_line_in_the_middle_is_an_error_that_names_it(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "time_seconds": 0}\nrubbish\n{"step": 2, "time_seconds": 0}\n')
    with pytest.raises(MetricError, match="line 2"):
        make(tmp_path, resume_step=2)
    assert "rubbish" in (tmp_path / "metrics.jsonl").read_text()


def test_tensorboard_shows_one_value_a_step_after_a_resume(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    logger = make(tmp_path, ["tensorboard"])
    for step in range(6):
        logger.log({"train/loss": float(step), "train/bad": math.nan}, step)
        logger.commit(step)
    logger.finish()
    with make(tmp_path, ["tensorboard"], resume_step=3) as logger:
        logger.log({"train/loss": 40.0}, 4)
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert events.Tags()["scalars"] == ["train/loss"]
    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [(0, 0), (1, 1), (2, 2), (3, 3), (4, 40)]


class FakeService(types.ModuleType):
    """Stands for wandb (whose ``init`` returns the run) and swanlab (where the module is the run)."""

    def __init__(self, name):
        super().__init__(name)
        self.inits, self.rows, self.finished, self.axes = [], [], [], []

    def init(self, **kwargs):
        self.inits.append(kwargs)
        return self

    def define_metric(self, name, step_metric=None):
        self.axes.append((name, step_metric))

    def log(self, row, step=None):
        self.rows.append((row, step))

    def finish(self, **kwargs):
        self.finished.append(kwargs)


@pytest.mark.parametrize("name", ["wandb", "swanlab"])
def test_hosted_services_continue_the_same_run_on_resume_only(tmp_path, monkeypatch, name):
    service = FakeService(name)
    monkeypatch.setenv("WANDB_API_KEY", "of-nobody")
    monkeypatch.setitem(sys.modules, name, service)
    for resume_step in (None, 1, None):
        with make(tmp_path, [name, name], resume_step=resume_step, config_dict={"seed": 1}) as logger:
            logger.log({"a": 1.0}, 2)
    first, resumed, anew = (kwargs["id"] for kwargs in service.inits)
    assert first == resumed != anew
    assert all(kwargs["resume"] == "allow" and kwargs["config"] == {"seed": 1} for kwargs in service.inits)
    assert len(service.rows) == len(service.finished) == 3
    if name == "wandb":
        # Rows after a resume carry our step as the axis: W&B would drop them by its own counter.
        assert service.rows[0] == ({"a": 1.0, "step": 2}, None)
        assert ("*", "step") in service.axes
    else:
        assert service.rows[0] == ({"a": 1.0}, 2)


def test_a_run_that_ends_by_an_error_is_marked_and_everything_is_closed(tmp_path, monkeypatch):
    wandb, swanlab = FakeService("wandb"), FakeService("swanlab")
    monkeypatch.setenv("WANDB_API_KEY", "of-nobody")
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "swanlab", swanlab)

    def fail(**_kwargs):
        raise ConnectionError("offline")

    monkeypatch.setattr(wandb, "finish", fail)
    logger = make(tmp_path, ["wandb", "swanlab"])
    logger.log({"a": 1.0}, 1)
    with pytest.raises(ConnectionError):
        logger.__exit__(ValueError, ValueError(), None)
    assert swanlab.finished[0]["state"] == "crashed"
    assert [row["step"] for row in rows(tmp_path)] == [1]


def test_a_missing_package_names_the_command_and_costs_no_records(tmp_path, monkeypatch):
    with make(tmp_path) as logger:
        logger.log({"a": 1.0}, 1)
    monkeypatch.setitem(sys.modules, "swanlab", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'rlinf\[swanlab\]'"):
        make(tmp_path, ["tensorboard", "swanlab"])
    assert len(rows(tmp_path)) == 1
    assert not (tmp_path / "tensorboard").exists()


def test_an_unknown_backend_is_refused(tmp_path):
    settings = types.SimpleNamespace(project_name="p", experiment_name="e", logger_backends=["tensorbord"])
    with pytest.raises(ConfigError, match=r"logger_backends.*tensorboard"):
        MetricLogger(tmp_path, settings)
