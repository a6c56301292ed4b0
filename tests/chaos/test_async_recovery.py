"""Workers that are killed while rollouts are made ahead of training come back, and no step is lost or made twice."""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tests.e2e.conftest as e2e
from tests.chaos.test_runner_recovery import wait_for_phase, wait_for_restart, worker_pid
from tests.e2e.conftest import TINY, read_metrics

pytestmark = pytest.mark.timeout(400)
RECIPE = "gym_cartpole_async_ppo_mlp"
STEPS = 18
# Nothing is due between the checkpoints: in each phase two rollouts are on their way.
KEYS = (
    *TINY,
    f"runner.max_epochs={STEPS}",
    "runner.val_check_interval=-1",
    "runner.save_interval=6",
    "runner.max_restarts=3",
    "env.train.max_steps_per_rollout_epoch=128",
    "algorithm.update_epoch=8",
    "algorithm.staleness_threshold=2",
)
KILLS = (("training", "EnvGroup_0"), ("publish weights", "RolloutGroup_0"), ("training", "ActorGroup_0"))


def test_workers_killed_between_two_checkpoints_come_back(
    start_run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(e2e, "ENTRY", Path(__file__).with_name("phase_entry.py"))
    environment = {"RLINF_TEST_PHASES": str(tmp_path / "phases"), "RLINF_TEST_ASYNC": "1"}
    run = start_run(RECIPE, *KEYS, f"runner.logger.log_path={tmp_path}", env=environment)
    folder, chance = tmp_path / RECIPE, random.Random(f"async/{seed}")
    seen = 0
    for phase, victim in KILLS:
        # Two whole steps first, so that the run is in the middle of its work.
        for name in ("publish weights", "publish weights", phase):
            seen = wait_for_phase(run, tmp_path, name, seen)
        time.sleep(chance.uniform(0, 0.05))
        os.kill(worker_pid(folder, victim), signal.SIGKILL)
        wait_for_restart(folder, victim)
        seen = len((tmp_path / "phases").read_text().splitlines())
    assert run.wait() == 0, run.output[-4000:]
    assert "restart 3 of at most 3" in run.output
    records = read_metrics(folder)
    assert [record["step"] for record in records] == list(range(1, STEPS + 1))
    assert max(record["rollout/staleness_max"] for record in records) <= 2
    assert not run.survivors()
