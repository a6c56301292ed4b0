"""A task type selects data, workers and runner; a launch and its folder name each other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rlinf.config.registries import task_types
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.registry import Registration, import_target
from rlinf.runners import launch as launching
from rlinf.runners.launch import launch, launch_embodied, launch_offline, launch_reasoning, launch_sft
from rlinf.runners.run_logger import RunLogger
from rlinf.runners.task_types import TaskType
from rlinf.scheduler.run_status import query_status
from tests.unit.runners.conftest import ReadRecipe

REPO = Path(__file__).parents[3]
LOG: list[str] = []


def test_every_task_type_has_its_parts_and_a_script() -> None:
    assert task_types.names() == task_types.configs.names()
    for name in task_types:
        task = task_types.get(name)
        assert all(callable(import_target(path)) for path in (task.data, task.workers, task.runner, task.plan))
        assert all((REPO / script).is_file() for script in task.script.split(" or "))


def test_each_task_type_keeps_the_name_of_its_launcher() -> None:
    assert {launch_embodied, launch_offline, launch_reasoning, launch_sft} == {launch}


class FakeGroup:
    """A group that is ready when somebody waits for it."""

    def wait_ready(self) -> FakeGroup:
        LOG.append("ready")
        return self


class FakeLauncher:
    """Starts nothing."""

    def __init__(self, cfg: Any, cluster: Any) -> None:
        self.groups: dict[str, Any] = {}

    def start(self, component: str, group: Any) -> None:
        LOG.append(f"start {component}")
        self.groups[component] = group


class CountingRunner:
    """The loop of a task type from outside."""

    def __init__(self, cfg: Any, *, counter: FakeGroup, numbers: list[int]) -> None:
        self.logger, self.numbers = None, numbers

    def init_workers(self) -> None:
        LOG.append("init")

    def run(self) -> dict[str, float]:
        LOG.append("run")
        return {"sum": float(sum(self.numbers))}


class DoublingRunner(CountingRunner):
    """Another loop over the same groups and data."""

    def run(self) -> dict[str, float]:
        return {"sum": 2 * super().run()["sum"]}


def read_numbers(cfg: Any, stack: ExitStack) -> tuple[Any, dict[str, Any]]:
    LOG.append("read")
    stack.callback(LOG.append, "data closed")
    return cfg, {"numbers": [1, 2]}


def start_counter(cfg: Any, launcher: FakeLauncher) -> Any:
    launcher.start("counter", FakeGroup())
    return cfg


@contextmanager
def open_nothing(cfg: Any) -> Iterator[None]:
    LOG.append("open")
    yield
    LOG.append("closed")


@pytest.mark.parametrize(("runner", "expected"), [(None, 3.0), (DoublingRunner, 6.0)])
def test_a_task_type_from_outside_runs_with_its_own_parts(
    recipe: ReadRecipe, monkeypatch: pytest.MonkeyPatch, runner: Any, expected: float
) -> None:
    LOG.clear()
    monkeypatch.setattr(launching, "GroupLauncher", FakeLauncher)
    monkeypatch.setattr(launching, "open_cluster", open_nothing)
    monkeypatch.setattr(launching, "record_run", lambda *_: LOG.append("recorded"))
    paths = {part: f"{__name__}:{name}" for part, name in zip(("data", "workers", "runner"), PARTS, strict=True)}
    monkeypatch.setitem(task_types._entries, "embodied", Registration(TaskType(**paths), EmbodiedConfig))
    assert launch(recipe(), runner) == {"sum": expected}
    steps = ["read", "open", "start counter", "ready", "recorded", "init", "run", "closed", "data closed"]
    assert steps == LOG


PARTS = ("read_numbers", "start_counter", "CountingRunner")


def test_the_folder_names_the_run_and_the_run_its_experiment(recipe: ReadRecipe, tmp_path: Path) -> None:
    cfg = recipe()
    name = cfg.runner.logger.experiment_name
    with ExitStack() as afterwards, launching.open_cluster(cfg) as cluster:
        logger = RunLogger(cfg)
        launching.record_run(logger, cluster, afterwards)
        with logger:
            assert query_status(cluster.namespace)["experiment_name"] == name
    (recorded,) = json.loads((tmp_path / name / "run.json").read_text())["launches"]
    assert recorded["run_id"] == cluster.namespace
    assert recorded["placement"]
