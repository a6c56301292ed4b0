"""Where numbers go: ``metrics.jsonl`` always, and the backends that the recipe asks for."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol

from rlinf.config.schema.runner import WandbConfig
from rlinf.errors import MetricError
from rlinf.telemetry.backends import MetricBackend, RunInfo, open_backends
from rlinf.utils.files import naming_file, write_atomic

METRICS_FILE = "metrics.jsonl"
_RESERVED = ("step", "time_seconds")


class LoggerSettings(Protocol):
    """What the logger reads of ``runner.logger``."""

    @property
    def project_name(self) -> str:
        """Project in W&B and SwanLab."""

    @property
    def experiment_name(self) -> str:
        """Name of the run."""

    @property
    def logger_backends(self) -> Any:
        """Names of further places metrics are sent to."""

    @property
    def wandb(self) -> WandbConfig:
        """How the run appears in W&B."""


class MetricLogger:
    """Writes one record a step to ``<log_dir>/metrics.jsonl`` and to every backend.

    A step may be logged in several calls (training, then evaluation). The calls are gathered, and the record is
    written when ``commit(step)`` is called, when a later step is logged or at ``finish()``; after
    ``commit`` at the end of each step a kill loses nothing. A written record has left this process's buffers. It is
    final, but for the record of ``resume_step``: evaluating a checkpoint again adds to it.

    Args:
        log_dir: The experiment's folder; made if it does not exist.
        logger_cfg: The recipe's ``runner.logger``.
        config_dict: The resolved recipe, stored with the run by W&B and SwanLab.
        resume_step: Step of the checkpoint that the run continues from: records of later steps are cut off, backends
            continue the same run. None begins anew: records of an earlier run in this folder are dropped.
        clock: Seconds from any fixed point; for tests.

    Raises:
        MissingPackageError: A backend's package is not installed; nothing has been cut off then.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        logger_cfg: LoggerSettings,
        config_dict: Mapping[str, Any] | None = None,
        resume_step: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = Path(log_dir)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._clock = clock
        self._pending: dict[str, float] = {}
        self._pending_step: int | None = None
        # Backends first: a missing package must not cost the records of the earlier run.
        self._backends: dict[str, MetricBackend] = open_backends(
            list(logger_cfg.logger_backends),
            RunInfo(
                folder=self._folder,
                project=logger_cfg.project_name,
                experiment=logger_cfg.experiment_name,
                config=dict(config_dict or {}),
                resume_step=resume_step,
                wandb=logger_cfg.wandb,
            ),
        )
        path = self._folder / METRICS_FILE
        last = cut_back(path, resume_step)
        self._path = path
        self._written_step: int | None = int(last["step"]) if last else None
        self._reopened = last if last and self._written_step == resume_step else None
        # Time goes on from the last kept record, as if the time between the two processes had not passed.
        self._started = clock() - (float(last["time_seconds"]) if last else 0.0)
        self._file: IO[str] | None = open(path, "a", encoding="utf-8")  # noqa: SIM115 - closed by finish()

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Add metrics to a step's record; a name given twice keeps its last value.

        Args:
            metrics: Numbers by name (``train/loss``); not finite is allowed and is written as null.
            step: Number of the step, never lower than one logged before; 0 is the evaluation before the first update.

        Raises:
            MetricError: The step is already written, a value is not a number, a name is reserved, or the logger has
                finished.
        """
        if self._file is None:
            raise MetricError(f"step {step} was logged after finish(); log before, or make a new MetricLogger")
        numbers = {name: _number(name, value) for name, value in metrics.items()}
        if self._pending_step is not None and step > self._pending_step:
            self.commit(self._pending_step)
        newest = self._pending_step if self._pending_step is not None else self._written_step
        written = step == self._written_step and self._reopened is None
        if newest is not None and (step < newest or written):
            raise MetricError(
                f"step {step} was logged when step {newest} was already begun or written; log all metrics of a step "
                "before commit(step) and before any later step"
            )
        self._pending_step = step
        self._pending.update(numbers)

    def commit(self, step: int) -> None:
        """Write the step's record; without metrics for it this does nothing.

        Args:
            step: The step that is complete.

        Raises:
            OSError: The record cannot be written; the disk is full, say. ``filename`` names the file.
        """
        if self._pending_step != step or self._file is None:
            return
        metrics, self._pending, self._pending_step = dict(sorted(self._pending.items())), {}, None
        values = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        earlier = self._reopened if step == self._written_step else None
        if earlier is not None:
            values = {name: value for name, value in earlier.items() if name not in _RESERVED} | values
        self._reopened, self._written_step = None, step
        seconds = round(self._clock() - self._started, 3)
        record = {"step": step, "time_seconds": seconds} | dict(sorted(values.items()))
        self._file = self._append(self._file, json.dumps(record, allow_nan=False) + "\n", replace=earlier is not None)
        for backend in self._backends.values():
            backend.write(metrics, step=step)

    def _append(self, file: IO[str], line: str, *, replace: bool) -> IO[str]:
        """Write the last line and return the open file."""
        if replace:
            file.close()
            lines = self._path.read_text(encoding="utf-8").splitlines(keepends=True)
            write_atomic(self._path, "".join([*lines[:-1], line]))
            return open(self._path, "a", encoding="utf-8")
        # One write a record, so that a kill leaves at most one torn line, the last, which cut_back drops.
        with naming_file(self._path):
            file.write(line)
            file.flush()
        return file

    def finish(self, *, failed: bool = False) -> None:
        """Write what is pending and close everything; a second call does nothing.

        Args:
            failed: Whether the run ended by an error; W&B shows it.
        """
        if self._file is None:
            return
        with ExitStack() as stack:
            # Each is closed even if another raises; the first error is raised at the end.
            for backend in reversed(self._backends.values()):
                stack.callback(backend.close, failed=failed)
            stack.callback(self._close_file)
            if self._pending_step is not None:
                self.commit(self._pending_step)

    def _close_file(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            with naming_file(self._path):
                file.close()

    def __enter__(self) -> MetricLogger:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish, as failed if an error is passing."""
        self.finish(failed=kind is not None)


def cut_back(path: Path, resume_step: int | None) -> dict[str, Any] | None:
    """Drop the records of a ``metrics.jsonl`` that come after a step, and a last line that a kill tore.

    Args:
        path: The file; need not exist.
        resume_step: Last step to keep; None keeps nothing.

    Returns:
        The last kept record, or None if there is none.

    Raises:
        MetricError: A line other than the last cannot be read.
    """
    if not path.exists():
        return None
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if resume_step is not None else []
    kept: list[str] = []
    last: dict[str, Any] | None = None
    for index, line in enumerate(lines):
        try:
            record: dict[str, Any] = json.loads(line)
            step, _ = int(record["step"]), float(record["time_seconds"])
        except (ValueError, KeyError, TypeError) as error:
            if index == len(lines) - 1:
                break
            raise MetricError(f"{path}, line {index + 1} is not a metrics record; repair or remove the line") from error
        if resume_step is not None and step <= resume_step:
            kept.append(line if line.endswith("\n") else line + "\n")
            last = record
    if kept != lines or resume_step is None:
        write_atomic(path, "".join(kept))
    return last


def _number(name: str, value: object) -> float:
    if name in _RESERVED:
        raise MetricError(f"metric name '{name}' is taken by the record itself; choose another, with a prefix")
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise MetricError(f"metric '{name}' is a {type(value).__name__}; log one number") from error
