"""Workers and drivers that are killed in chosen phases of a run come back, and the run ends as if nothing had been."""

import os
import random
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import tests.e2e.conftest as e2e
from tests.e2e.conftest import TINY, read_metrics

pytestmark = pytest.mark.timeout(400)
RECIPE = "gym_cartpole_ppo_mlp"
STEPS = 6
# Small steps whose phases still last long enough to be hit.
KEYS = (
    *TINY,
    f"runner.max_epochs={STEPS}",
    "runner.val_check_interval=1",
    "runner.save_interval=1",
    # A worker's death ends the episodes that are under way: so each step begins with its own here.
    "env.train.use_fixed_reset_state_ids=true",
    "env.train.max_steps_per_rollout_epoch=128",
    "algorithm.update_epoch=8",
)
# An env or rollout worker comes back within the step; an actor at the last checkpoint.
KILLS = (
    ("rollout", "EnvGroup_0"),
    ("evaluation", "EnvGroup_0"),
    ("rollout", "RolloutGroup_0"),
    ("sync weights", "RolloutGroup_0"),
    ("training", "ActorGroup_0"),
    ("checkpoint", "ActorGroup_0"),
)
AGENTS_OF_RAY = {"ray::DashboardAgent", "ray::RuntimeEnvAgent"}


@pytest.fixture
def start(start_run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Start a run whose phases can be waited for."""
    monkeypatch.setattr(e2e, "ENTRY", Path(__file__).with_name("phase_entry.py"))
    monkeypatch.setenv("RLINF_TEST_PHASES", str(tmp_path / "phases"))
    return lambda *keys: start_run(RECIPE, *KEYS, *keys, f"runner.logger.log_path={tmp_path}")


def worker_pid(folder: Path, name: str) -> int:
    """Return the process id of a worker's present incarnation, such as ``EnvGroup_0``, from its log."""
    return int(re.findall(r"Ready: process (\d+)", (folder / "worker_logs" / f"{name}.log").read_text())[-1])


def wait_for_phase(run: Any, tmp_path: Path, name: str, seen: int = 0, timeout: int = 120) -> int:
    """Wait until the runner enters a phase; ``seen`` entries of the file are those of before."""
    path = tmp_path / "phases"
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        phases = path.read_text().splitlines() if path.exists() else []
        if name in phases[seen:]:
            return len(phases)
        assert run.process.poll() is None, (run.wait(), run.output[-4000:])
        time.sleep(0.005)
    run.process.kill()
    run.wait()
    pytest.fail(f"phase {name} was not reached:\n{run.output[-4000:]}")


def wait_for_step(run: Any, folder: Path, step: int, timeout: int = 120) -> None:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        assert run.process.poll() is None, (run.wait(), run.output[-4000:])
        records = read_metrics(folder) if (folder / "metrics.jsonl").exists() else []
        if records and records[-1]["step"] >= step:
            return
        time.sleep(0.02)
    run.process.kill()
    run.wait()
    pytest.fail(f"step {step} was not reached:\n{run.output[-4000:]}")


def assert_whole(folder: Path) -> None:
    """The record of the run holds every step once, whatever has happened on the way."""
    records = read_metrics(folder)
    assert [record["step"] for record in records] == list(range(STEPS + 1))
    assert all(record["eval/return"] > 0 for record in records)


def without_times(folder: Path) -> list[dict[Any, Any]]:
    """Return the run's record but for what differs between any two runs: how long things took."""
    records = read_metrics(folder)
    return [{k: v for k, v in r.items() if not k.startswith("time")} for r in records]


def test_killed_workers_are_launched_again_and_the_run_ends_as_if_nothing_had_been(
    start: Callable[..., Any], tmp_path: Path, seed: int
) -> None:
    chance = random.Random(f"workers/{seed}")
    undisturbed = start("runner.logger.experiment_name=undisturbed")
    assert undisturbed.wait() == 0, undisturbed.output[-4000:]
    run = start("runner.max_restarts=6")
    folder = tmp_path / RECIPE
    wait_for_step(run, folder, 1)
    seen = len((tmp_path / "phases").read_text().splitlines())
    # One of each kind of worker; the seeds of a long run get to all of the kills.
    victims = [KILLS[(seed + offset) % len(KILLS)] for offset in (0, 3, 5)]
    for phase, victim in victims:
        seen = wait_for_phase(run, tmp_path, phase, seen)
        time.sleep(chance.uniform(0, 0.05))
        os.kill(worker_pid(folder, victim), signal.SIGKILL)
        # A death may be noticed in a later phase than it happened in; the next one must not meet it.
        wait_for_restart(folder, victim)
        seen = wait_for_phase(run, tmp_path, "training", len((tmp_path / "phases").read_text().splitlines()))
    assert run.wait() == 0, run.output[-4000:]
    assert f"restart {len(victims)} of at most 6" in run.output
    for _, victim in victims:
        assert victim.replace("_", ":") in run.output
    assert_whole(folder)
    # Each step begins with episodes of its own here, so one that is made again is the same step.
    assert without_times(folder) == without_times(tmp_path / "undisturbed")
    assert not run.survivors()


def left_but_agents(run: Any, timeout: int = 20) -> set[Any]:
    """Ray's own agents notice the death of their raylet a minute later; everything of ours goes with the driver."""
    deadline = time.monotonic() + timeout
    while True:
        left = {name_of(process) for process in run.survivors(patience=0)} - AGENTS_OF_RAY - {None}
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.2)


def name_of(process: psutil.Process) -> str | None:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return None


def wait_for_restart(folder: Path, victim: str, timeout: int = 60) -> None:
    log = folder / "worker_logs" / f"{victim}.log"
    before = log.read_text().count("Ready: process")
    deadline = time.monotonic() + timeout
    while log.read_text().count("Ready: process") == before and time.monotonic() < deadline:
        time.sleep(0.05)


def test_without_restarts_a_killed_worker_ends_the_run_by_name(
    start: Callable[..., Any], tmp_path: Path, seed: int
) -> None:
    chance = random.Random(f"end/{seed}")
    run = start()
    phase, victim = chance.choice(KILLS)
    seen = wait_for_phase(run, tmp_path, "training")
    wait_for_phase(run, tmp_path, phase, seen)
    time.sleep(chance.uniform(0, 0.05))
    os.kill(worker_pid(tmp_path / RECIPE, victim), signal.SIGKILL)
    assert run.wait(timeout=40) == 1, run.output[-4000:]
    assert victim.replace("_", ":") in run.output
    assert "died" in run.output
    assert not run.survivors()


def test_a_killed_driver_loses_no_completed_step(start: Callable[..., Any], tmp_path: Path, seed: int) -> None:
    chance = random.Random(f"driver/{seed}")
    phase = ("checkpoint", "training", "checkpoint", "evaluation")[seed % 4]
    run = start()
    folder = tmp_path / RECIPE
    wait_for_step(run, folder, 2)
    wait_for_phase(run, tmp_path, phase, len((tmp_path / "phases").read_text().splitlines()))
    time.sleep(chance.uniform(0, 0.03))
    run.process.kill()
    run.wait()
    before = read_metrics(folder)
    assert not left_but_agents(run)
    again = start("runner.resume_dir=auto")
    assert again.wait() == 0, again.output[-4000:]
    assert_whole(folder)
    assert read_metrics(folder)[: len(before)] == before
