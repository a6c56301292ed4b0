"""Further places metrics are sent to: TensorBoard, W&B, SwanLab; a plug-in's registers in ``metric_backends``."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from rlinf.config.registries import metric_backends
from rlinf.config.schema.runner import WandbConfig
from rlinf.errors import ConfigError
from rlinf.telemetry.wandb_login import require_wandb_login
from rlinf.utils.files import write_atomic
from rlinf.utils.optional import require

TENSORBOARD_FOLDER = "tensorboard"
VIDEO_FOLDER = "video"
_PACKAGES = {"tensorboard", "wandb", "swanlab"}
"""What the backends here need, each the package of its own name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What a backend knows about the run."""

    folder: Path
    """The experiment's folder, which exists."""
    project: str
    """Project name in hosted services."""
    experiment: str
    """Name of the run."""
    config: dict[str, Any]
    """The resolved recipe."""
    resume_step: int | None
    """Last step that stays; None begins anew."""
    wandb: WandbConfig = field(default_factory=WandbConfig)
    """How the run appears in W&B."""


class MetricBackend(Protocol):
    """One place that metrics are sent to."""

    def write(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Send one step's metrics; called once a step, steps rising."""

    def close(self, *, failed: bool) -> None:
        """Send what is buffered and let go of everything."""


class TensorBoardBackend:
    """Writes event files with TensorBoard's own writer, without TensorFlow or torch.

    Args:
        run: The run; events go to ``<folder>/tensorboard``. Events after ``resume_step`` disappear from the curves.
    """

    def __init__(self, run: RunInfo) -> None:
        # The package carries no types, hence Any. These modules load neither TensorFlow nor torch.
        self._event_pb2: Any = _require_backend("tensorboard", "tensorboard.compat.proto.event_pb2")
        self._summary_pb2: Any = _require_backend("tensorboard", "tensorboard.compat.proto.summary_pb2")
        writer: Any = _require_backend("tensorboard", "tensorboard.summary.writer.event_file_writer")
        self._writer: Any = writer.EventFileWriter(str(run.folder / TENSORBOARD_FOLDER))
        # A session start at step s makes every reader forget events of step s and later from older files.
        first_step = 0 if run.resume_step is None else run.resume_step + 1
        start = self._event_pb2.SessionLog(status=self._event_pb2.SessionLog.START)
        self._writer.add_event(self._event_pb2.Event(wall_time=time.time(), step=first_step, session_log=start))

    def write(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Write one scalar per metric and flush, so that a kill loses nothing."""
        values = [
            self._summary_pb2.Summary.Value(tag=name, simple_value=value)
            for name, value in metrics.items()
            if not math.isnan(value)
        ]
        summary = self._summary_pb2.Summary(value=values)
        self._writer.add_event(self._event_pb2.Event(wall_time=time.time(), step=step, summary=summary))
        self._writer.flush()

    def close(self, *, failed: bool) -> None:
        """Close the event file."""
        self._writer.close()


class WandbBackend:
    """Sends metrics to W&B; a resumed run continues under the id kept in ``<folder>/wandb_run_id``.

    Args:
        run: The run.
    """

    def __init__(self, run: RunInfo) -> None:
        self._wandb: Any = _require_backend("wandb")
        self._step = run.resume_step or 0
        self._run: Any = self._wandb.init(
            project=run.project,
            name=run.experiment,
            id=_run_id(run, "wandb"),
            resume="allow",
            dir=str(run.folder),
            config=run.config,
            entity=run.wandb.entity,
            group=run.wandb.group,
            tags=list(run.wandb.tags) or None,
        )
        self._videos = VideoFiles(run.folder / VIDEO_FOLDER) if run.wandb.upload_videos else None
        # W&B drops rows whose own step counter goes back, as it does after a resume; with our step as the axis the
        # repeated steps are plotted over the old ones.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def write(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Send one row, and the videos that were finished since the last."""
        self._run.log({**metrics, **self._new_videos(), "step": step})
        self._step = step

    def _new_videos(self, *, is_last: bool = False) -> dict[str, Any]:
        if self._videos is None:
            return {}
        return {
            f"{VIDEO_FOLDER}/{name}": self._wandb.Video(str(path), format="mp4")
            for name, path in self._videos.take_finished(is_last=is_last).items()
        }

    def close(self, *, failed: bool) -> None:
        """Upload the rest; ``failed`` marks the run as crashed."""
        videos = self._new_videos(is_last=True)
        if videos:
            self._run.log({**videos, "step": self._step})
        self._run.finish(exit_code=1 if failed else 0)


class VideoFiles:
    """The videos that env workers write below a folder, each taken once it is finished.

    Args:
        folder: Of the run's videos; those that are there already were taken by an earlier launch.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._taken = set(self._sizes())
        self._growing: dict[Path, int] = {}

    def take_finished(self, *, is_last: bool = False) -> dict[str, Path]:
        """Return new videos by their names below the folder, without suffix.

        Args:
            is_last: Whether all writers have ended; else a file is finished that has not grown since the last call.
        """
        sizes = {path: size for path, size in self._sizes().items() if path not in self._taken}
        finished = [path for path, size in sizes.items() if is_last or self._growing.get(path) == size]
        self._growing = sizes
        self._taken.update(finished)
        return {path.relative_to(self._folder).with_suffix("").as_posix(): path for path in sorted(finished)}

    def _sizes(self) -> dict[Path, int]:
        return {path: path.stat().st_size for path in self._folder.rglob("*.mp4")}


class SwanlabBackend:
    """Sends metrics to SwanLab; a resumed run continues under the id kept in ``<folder>/swanlab_run_id``.

    Args:
        run: The run.
    """

    def __init__(self, run: RunInfo) -> None:
        self._swanlab: Any = _require_backend("swanlab")
        self._swanlab.init(
            project=run.project,
            experiment_name=run.experiment,
            id=_run_id(run, "swanlab"),
            resume="allow",
            logdir=str(run.folder / "swanlab"),
            config=run.config,
        )

    def write(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Send one row."""
        self._swanlab.log(dict(metrics), step=step)

    def close(self, *, failed: bool) -> None:
        """Upload the rest; ``failed`` marks the run as crashed."""
        if failed:
            self._swanlab.finish(state="crashed", error="the run ended by an error")
        else:
            self._swanlab.finish()


def check_backends(names: Sequence[str]) -> None:
    """Look whether the backends that a recipe asks for can be opened, before anything is launched for it.

    Args:
        names: Names in ``runner.logger.logger_backends``.

    Raises:
        ConfigError: A name is unknown, or there is no login to W&B.
        MissingPackageError: A package is not installed.
    """
    for name in names:
        if name not in metric_backends:
            raise ConfigError(
                f"runner.logger.logger_backends names '{name}'; known backends: {', '.join(metric_backends)}"
            )
        if name in _PACKAGES:
            _require_backend(name)
    if "wandb" in names:
        require_wandb_login()


def open_backends(names: list[str], run: RunInfo) -> dict[str, MetricBackend]:
    """Open the backends that a recipe asks for.

    Args:
        names: Names in ``runner.logger.logger_backends``; naming one twice opens it once.
        run: What they know about the run.

    Returns:
        Open backends by name.

    Raises:
        ConfigError: See ``check_backends``: all are looked at before any is opened.
        MissingPackageError: The same.
    """
    check_backends(names)
    return {name: metric_backends.get(name)(run) for name in dict.fromkeys(names)}


def _require_backend(name: str, module: str | None = None) -> ModuleType:
    install = f"pip install {name}" if name == "tensorboard" else f"pip install 'rlinf[{name}]'"
    return require(module or name, install=install, needed_by=f"runner.logger.logger_backends containing '{name}'")


def _run_id(run: RunInfo, service: str) -> str:
    """Return the id under which a service knows the run: the stored one when resuming, else a new one, stored."""
    path = run.folder / f"{service}_run_id"
    if run.resume_step is not None and path.exists():
        return path.read_text(encoding="utf-8").strip()
    run_id = uuid.uuid4().hex[:12]
    write_atomic(path, run_id + "\n")
    return run_id
