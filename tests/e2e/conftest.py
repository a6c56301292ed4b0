import json
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

from rlinf.config import load_recipe, validate_cfg
from rlinf.runners.launch import launch, launch_reasoning
from tests.e2e.tiny_math import make_questions
from tests.forked_scripts import start_script

REPO = Path(__file__).parents[2]
ENTRY = REPO / "examples/embodiment/train_embodied_agent.py"
ASYNC_ENTRY = REPO / "examples/embodiment/train_async.py"

# A few hundred environment steps: enough for every part of the loop to run.
TINY = (
    "runner.max_epochs=2",
    "runner.val_check_interval=2",
    "env.train.total_num_envs=8",
    "env.train.max_steps_per_rollout_epoch=32",
    "env.eval.total_num_envs=8",
    "env.eval.max_steps_per_rollout_epoch=64",
    "env.eval.max_episode_steps=64",
    "algorithm.update_epoch=2",
    "actor.global_batch_size=128",
    "actor.micro_batch_size=32",
)


def ranks(*, env: int, rollout: int, actor: int = 1) -> tuple[str, str, str]:
    """Keys that place so many ranks of each group."""
    groups = {"actor": actor, "rollout": rollout, "env": env}
    placement = ", ".join(f"{name}: 0-{size - 1}" for name, size in groups.items())
    slots = max(groups.values())
    return (
        f"cluster.cpu_slots_per_node={slots}",
        "~cluster.component_placement",
        f"+cluster.component_placement={{{placement}}}",
    )


class Run:
    """The entry script as a process of its own, recognisable by a mark in its environment."""

    def __init__(
        self, recipe: str, overrides: tuple[str, ...], env: dict[str, str] | None = None, entry: Any = None
    ) -> None:
        self.mark = uuid.uuid4().hex
        # A Ray folder of its own: a Ray that somebody has started on this machine is not found. Its sockets need a
        # short path.
        self.ray_folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")
        environment = {
            **os.environ,
            "RLINF_TEST_MARK": self.mark,
            "RAY_TMPDIR": self.ray_folder,
            "RAY_ADDRESS": "",
            "PYTHONUNBUFFERED": "1",
            # Process titles must not be written over the environment, by which processes are recognised here.
            "SPT_NOENV": "1",
            **(env or {}),
        }
        if not environment["RAY_ADDRESS"]:
            del environment["RAY_ADDRESS"]
        arguments = [str(entry or ENTRY), "--config-name", recipe, *overrides]
        self.process = start_script(arguments, environment, str(REPO))
        self.output = ""

    def wait(self, timeout: int = 180) -> int:
        try:
            self.output, _ = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.output, _ = self.process.communicate()
            pytest.fail(f"the run did not end within {timeout} s:\n{self.output[-4000:]}")
        assert self.process.returncode is not None
        return self.process.returncode

    def survivors(self, patience: float = 10.0) -> list[psutil.Process]:
        """Return the processes that the run has left behind."""
        deadline = time.monotonic() + patience
        while True:
            alive = [p for p in psutil.process_iter() if self._is_mine(p)]
            if not alive or time.monotonic() > deadline:
                return alive
            time.sleep(0.2)

    def _is_mine(self, process: psutil.Process) -> bool:
        try:
            is_marked = process.environ().get("RLINF_TEST_MARK") == self.mark
            is_forked = Path(self.ray_folder, f"forked_{process.pid}").exists()
            return process.status() != psutil.STATUS_ZOMBIE and (is_marked or is_forked)
        except psutil.Error:
            return False


def is_agent_of_ray(process: psutil.Process) -> bool:
    """Tell Ray's agents by their commands, which they have before they take their names."""
    try:
        return "agent" in " ".join(process.cmdline()).lower()
    except psutil.Error:
        return True


@pytest.fixture(scope="session")
def ray_ends() -> Iterator[None]:
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def one_node(ray_ends: None) -> Any:
    """One Ray for all runs of this test process, which attach to it; returns its address."""
    if not ray.is_initialized():
        ray.init(address="local", num_cpus=2, include_dashboard=False)
    return ray.get_runtime_context().gcs_address


@pytest.fixture(scope="module")
def train(one_node: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Run a recipe in this process: what costs most in a run is to start a driver and Ray. Returns the run's folder."""

    def run(recipe: str, *overrides: str, log_path: Path | None = None) -> Path:
        log_path = log_path or tmp_path_factory.mktemp("run")
        launch(validate_cfg(load_recipe(recipe, [*overrides, f"runner.logger.log_path={log_path}"])))
        return log_path / recipe

    return run


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Questions of addition, and a model that has not learned yet."""
    return make_questions(tmp_path_factory.mktemp("tiny_math"))


@pytest.fixture(scope="module")
def run_text_recipe(
    one_node: None, keys: list[str], request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """Run the recipe that the test's module names, with the overrides of its fixture ``keys``; returns its folder."""
    name = request.module.RECIPE

    def run(*overrides: str) -> Path:
        log_path = tmp_path_factory.mktemp("run")
        launch_reasoning(validate_cfg(load_recipe(name, [*keys, f"runner.logger.log_path={log_path}", *overrides])))
        return log_path / name

    return run


@pytest.fixture
def start_run() -> Iterator[Callable[..., Any]]:
    runs = []

    def start(recipe: str, *overrides: str, env: dict[str, Any] | None = None, entry: Path | None = None) -> Any:
        runs.append(Run(recipe, overrides, env, entry))
        return runs[-1]

    yield start
    for run in runs:
        for process in run.survivors(patience=0):
            process.kill()
        shutil.rmtree(run.ray_folder, ignore_errors=True)


def read_metrics(folder: Path) -> list[dict[Any, Any]]:
    """Return the records of ``metrics.jsonl`` without what is measured in seconds."""
    lines = (Path(folder) / "metrics.jsonl").read_text().splitlines()
    return [
        {name: value for name, value in json.loads(line).items() if not name.startswith(("time/", "time_"))}
        for line in lines
    ]
