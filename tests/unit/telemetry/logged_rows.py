"""A logger of metrics whose clock the test moves, and what it has written."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from rlinf.config.schema.runner import LoggerConfig
from rlinf.telemetry import MetricLogger


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def rows(folder: Path) -> list[Any]:
    def refuse(token: str) -> NoReturn:
        raise AssertionError(f"{token} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@contextmanager
def full_disk(num_bytes: int) -> Iterator[None]:
    """A disk on which a file may have so many bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def make(folder: Path, backends: str = (), **kwargs: int | dict[str, int] | Clock | None) -> MetricLogger:
    return MetricLogger(folder, LoggerConfig(logger_backends=list(backends), experiment_name="exp"), **kwargs)


class FakeService(ModuleType):
    """Stands for wandb (whose ``init`` returns the run) and swanlab (where the module is the run)."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.inits, self.rows, self.finished, self.axes = [], [], [], []

    def init(self, **kwargs: Any) -> FakeService:
        self.inits.append(kwargs)
        return self

    def define_metric(self, name: str, step_metric: str | None = None) -> None:
        self.axes.append((name, step_metric))

    def log(self, row: dict[str, float | str | None], step: int | None = None) -> None:
        self.rows.append((row, step))

    def finish(self, **kwargs: bool) -> None:
        self.finished.append(kwargs)
