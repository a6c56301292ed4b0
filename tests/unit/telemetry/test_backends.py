"""Backends of metrics: TensorBoard, hosted services, and what is not installed."""

import math
import sys
import types
from pathlib import Path

import pytest
from logged_rows import FakeService, make, rows

from rlinf.errors import ConfigError, MissingPackageError
from rlinf.telemetry import MetricLogger


def test_tensorboard_shows_one_value_a_step_after_a_resume(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("name", ["wandb", "swanlab"])
def test_hosted_services_continue_the_same_run_on_resume_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
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


def test_a_missing_package_names_the_command_and_costs_no_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make(tmp_path) as logger:
        logger.log({"a": 1.0}, 1)
    monkeypatch.setitem(sys.modules, "swanlab", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'rlinf\[swanlab\]'"):
        make(tmp_path, ["tensorboard", "swanlab"])
    assert len(rows(tmp_path)) == 1
    assert not (tmp_path / "tensorboard").exists()


def test_an_unknown_backend_is_refused(tmp_path: Path) -> None:
    settings = types.SimpleNamespace(project_name="p", experiment_name="e", logger_backends=["tensorbord"])
    with pytest.raises(ConfigError, match=r"logger_backends.*tensorboard"):
        MetricLogger(tmp_path, settings)
