"""Workers that are killed in the middle of a run come back, and the run ends as if nothing had happened."""

import os
import random
import re
import signal
import time

import pytest

from tests.e2e.conftest import TINY, read_metrics

pytestmark = pytest.mark.timeout(400)
KEYS = (*TINY, "runner.max_epochs=8", "runner.val_check_interval=4", "runner.save_interval=3")
# Eight steps are over too soon to be hit in the middle.
SLOWER = ("env.train.max_steps_per_rollout_epoch=256", "algorithm.update_epoch=8")


def worker_pid(folder, name):
    """Return the process id of a worker's present incarnation, such as ``EnvGroup_0``, from its log."""
    return int(re.findall(r"Ready: process (\d+)", (folder / "worker_logs" / f"{name}.log").read_text())[-1])


def wait_for_step(run, folder, step, timeout=120):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        assert run.process.poll() is None, run.wait()
        if (
            (folder / "metrics.jsonl").exists()
            and read_metrics(folder)[-1:]
            and read_metrics(folder)[-1]["step"] >= step
        ):
            return
        time.sleep(0.05)
    run.process.kill()
    run.wait()
    pytest.fail(f"step {step} was not reached:\n{run.output[-4000:]}")


@pytest.mark.parametrize("victim", ["EnvGroup:0", "RolloutGroup:0", "ActorGroup:0"])
def test_a_killed_worker_is_launched_again_and_the_run_goes_on(start_run, tmp_path, victim):
    keys = (*KEYS, *SLOWER, "runner.max_restarts=3", f"runner.logger.log_path={tmp_path}")
    run = start_run("gym_cartpole_ppo_mlp", *keys)
    folder = tmp_path / "gym_cartpole_ppo_mlp"
    wait_for_step(run, folder, 4)
    time.sleep(random.Random(victim).uniform(0, 0.5))
    os.kill(worker_pid(folder, victim.replace(":", "_")), signal.SIGKILL)
    assert run.wait() == 0, run.output[-4000:]
    assert f"{victim}" in run.output
    assert "restart 1 of at most 3" in run.output
    records = read_metrics(folder)
    assert [record["step"] for record in records] == list(range(9))
    assert records[-1]["eval/return"] > 0
    assert not run.survivors()


def test_without_restarts_a_killed_worker_ends_the_run_by_name(start_run, tmp_path):
    run = start_run("gym_cartpole_ppo_mlp", *KEYS, *SLOWER, f"runner.logger.log_path={tmp_path}")
    folder = tmp_path / "gym_cartpole_ppo_mlp"
    wait_for_step(run, folder, 2)
    os.kill(worker_pid(folder, "EnvGroup_0"), signal.SIGKILL)
    assert run.wait(timeout=30) == 1, run.output[-4000:]
    assert "EnvGroup:0" in run.output
    assert "died" in run.output
    assert not run.survivors()


def test_a_killed_driver_loses_no_completed_step(start_run, tmp_path):
    run = start_run("gym_cartpole_ppo_mlp", *KEYS, *SLOWER, f"runner.logger.log_path={tmp_path}")
    folder = tmp_path / "gym_cartpole_ppo_mlp"
    wait_for_step(run, folder, 4)
    run.process.kill()
    run.wait()
    before = read_metrics(folder)
    # Ray's own agents notice the death of their raylet a minute later; everything of ours is gone with the driver.
    assert {process.name() for process in run.survivors()} <= {"ray::DashboardAgent", "ray::RuntimeEnvAgent"}
    again = start_run(
        "gym_cartpole_ppo_mlp", *KEYS, *SLOWER, "runner.resume_dir=auto", f"runner.logger.log_path={tmp_path}"
    )
    assert again.wait() == 0, again.output[-4000:]
    records = read_metrics(folder)
    assert [record["step"] for record in records] == list(range(9))
    assert records[: len(before)] == before
