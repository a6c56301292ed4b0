"""Backends of metrics: TensorBoard, hosted services, and what is not installed."""

import math
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from logged_rows import FakeService, make, rows

from rlinf.config.schema.runner import LoggerConfig, WandbConfig
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
    settings = LoggerConfig(project_name="p", experiment_name="e", logger_backends=["tensorbord"])
    with pytest.raises(ConfigError, match=r"logger_backends.*tensorboard"):
        MetricLogger(tmp_path, settings)


@pytest.mark.parametrize(
    ("name", "pattern", "encode"),
    [
        pytest.param("wandb", "offline-run-*/run-*.wandb", lambda value: repr(value).encode(), marks=pytest.mark.wandb),
        pytest.param(
            "swanlab", "run-*/run-*.swanlab", lambda value: struct.pack("<d", value), marks=pytest.mark.swanlab
        ),
    ],
)
def test_the_service_itself_keeps_values_and_the_runs_id_offline(
    tmp_path: Path, name: str, pattern: str, encode: Callable[[float], bytes]
) -> None:
    # A process of its own: the services leave threads and hooks behind.
    script = (
        "import sys, pathlib; from logged_rows import make\n"
        "for resume_step, values in ((None, [1 / 3, 1 / 7]), (0, [1 / 11])):\n"
        f"    with make(pathlib.Path({str(tmp_path)!r}), [{name!r}], resume_step=resume_step) as logger:\n"
        "        for step, value in enumerate(values, start=resume_step is not None):\n"
        "            logger.log({'train/loss': value}, step)\n"
    )
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    settings = {"WANDB_MODE": "offline", "SWANLAB_MODE": "offline", "PYTHONPATH": paths, "HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", script], env={**os.environ, **settings}, check=True, timeout=200)
    first, resumed = sorted((tmp_path / name).glob(pattern))
    assert first.name == resumed.name
    assert first.name[len("run-") :].startswith((tmp_path / f"{name}_run_id").read_text().strip())
    assert [encode(value) in first.read_bytes() for value in (1 / 3, 1 / 7, 1 / 11)] == [True, True, False]
    assert [encode(value) in resumed.read_bytes() for value in (1 / 3, 1 / 7, 1 / 11)] == [False, False, True]


def test_a_run_appears_in_wandb_as_the_recipe_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = FakeService("wandb")
    monkeypatch.setenv("WANDB_API_KEY", "of-nobody")
    monkeypatch.setitem(sys.modules, "wandb", service)
    settings = WandbConfig(entity="team", group="sweep", tags=["a", "b"])
    MetricLogger(tmp_path / "one", LoggerConfig(logger_backends=["wandb"], wandb=settings)).finish()
    MetricLogger(tmp_path / "two", LoggerConfig(logger_backends=["wandb"])).finish()
    sent = [(kwargs["entity"], kwargs["group"], kwargs["tags"]) for kwargs in service.inits]
    assert sent == [("team", "sweep", ["a", "b"]), (None, None, None)]


def test_videos_are_sent_once_and_when_they_are_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = FakeService("wandb")
    service.Video = lambda path, format: (Path(path).name, format)  # type: ignore[attr-defined]
    monkeypatch.setenv("WANDB_API_KEY", "of-nobody")
    monkeypatch.setitem(sys.modules, "wandb", service)
    folder = tmp_path / "video" / "eval"
    folder.mkdir(parents=True)
    (folder / "old.mp4").write_bytes(b"of an earlier launch")
    settings = LoggerConfig(logger_backends=["wandb"], wandb=WandbConfig(upload_videos=True))
    with MetricLogger(tmp_path, settings) as logger:
        for step, size in ((1, 3), (2, 5), (3, 5), (4, 5)):
            (folder / "growing.mp4").write_bytes(b"x" * size)
            logger.log({"a": 1.0}, step)
            logger.commit(step)
        (folder / "last.mp4").write_bytes(b"x")
    sent = [{name: value for name, value in row.items() if name.startswith("video")} for row, _ in service.rows]
    assert sent == [
        {},
        {},
        {"video/eval/growing": ("growing.mp4", "mp4")},
        {},
        {"video/eval/last": ("last.mp4", "mp4")},
    ]
    assert service.rows[-1][0]["step"] == 4
