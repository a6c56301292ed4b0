"""Processes that serve a run are killed in the middle of it: the head of Ray, and the host of its channels."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tests.e2e.conftest as e2e
from tests.chaos.test_runner_recovery import KEYS, assert_whole, left_but_agents, wait_for_phase, wait_for_step
from tests.e2e.conftest import read_metrics

pytestmark = pytest.mark.timeout(400)
RECIPE = "gym_cartpole_ppo_mlp"


@pytest.fixture
def start(start_run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Start a run whose phases can be waited for."""
    monkeypatch.setattr(e2e, "ENTRY", Path(__file__).with_name("phase_entry.py"))
    monkeypatch.setenv("RLINF_TEST_PHASES", str(tmp_path / "phases"))
    return lambda *keys: start_run(RECIPE, *KEYS, *keys, f"runner.logger.log_path={tmp_path}")


def kill_child(run: Any, name: str) -> None:
    (found,) = [child for child in run.survivors(patience=0) if name in " ".join([child.name(), *child.cmdline()])]
    os.kill(found.pid, signal.SIGKILL)


def test_without_the_head_of_ray_the_run_ends_by_itself_and_can_be_resumed(
    start: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLINF_TEST_PATIENCE", "3")
    run = start("runner.max_epochs=100000")
    folder = tmp_path / RECIPE
    wait_for_step(run, folder, 2)
    kill_child(run, "gcs_server")
    assert run.wait(timeout=120) == 1, run.output[-4000:]
    assert "Error: Ray's head service (GCS) at" in run.output, run.output[-4000:]
    assert "has not come back for 3 s" in " ".join(run.output.split())
    assert not left_but_agents(run)
    before = read_metrics(folder)
    again = start("runner.resume_dir=auto", f"runner.max_epochs={before[-1]['step'] + 1}")
    assert again.wait() == 0, again.output[-4000:]
    records = read_metrics(folder)
    assert [record["step"] for record in records] == list(range(before[-1]["step"] + 2))
    assert records[: len(before) - 1] == before[:-1]


def test_a_host_of_channels_comes_back_with_who_used_it(start: Callable[..., Any], tmp_path: Path) -> None:
    run = start("runner.enable_decoupled_mode=true", "runner.max_restarts=1")
    folder = tmp_path / RECIPE
    wait_for_step(run, folder, 1)
    wait_for_phase(run, tmp_path, "rollout", len((tmp_path / "phases").read_text().splitlines()))
    kill_child(run, "ChannelHost")
    assert run.wait() == 0, run.output[-4000:]
    assert "restart 1 of at most 1" in run.output
    assert_whole(folder)
    assert not run.survivors()
