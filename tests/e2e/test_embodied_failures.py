"""What goes wrong ends with exit code 1, one clear message, and nothing left running."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import TINY, is_agent_of_ray, read_metrics

pytestmark = pytest.mark.timeout(300)
PLUGIN = {"RLINF_EXT_MODULE": "tests.e2e.broken_envs", "PYTHONPATH": str(Path(__file__).parents[2])}
BROKEN = ("env.train.env_type=broken", "~env.train.init_params")


def fails(run: Any, *expected: str) -> None:
    assert run.wait() == 1, run.output[-4000:]
    for text in expected:
        assert text in run.output, run.output[-4000:]
    assert not run.survivors()


def test_a_misspelt_key_is_refused_before_anything_starts(start_run: Callable[..., Any], tmp_path: Path) -> None:
    run = start_run("gym_cartpole_ppo_mlp", *TINY, "algorithm.gama=0.9", f"runner.logger.log_path={tmp_path}")
    fails(run, "algorithm.gama", "Did you mean", "gamma")
    assert not list(tmp_path.iterdir())


def test_an_environment_that_raises_is_named_with_its_step(start_run: Callable[..., Any], tmp_path: Path) -> None:
    run = start_run(
        "gym_cartpole_ppo_mlp", *TINY, *BROKEN, "env.train.fault=step", f"runner.logger.log_path={tmp_path}", env=PLUGIN
    )
    fails(run, "EnvironmentFailure", "the gripper is stuck", "EnvGroup", "37")
    assert 'Traceback (most recent call last):\n  File "' not in run.output.split("EnvironmentFailure")[0]


def test_a_reward_that_is_nan_stops_the_run(start_run: Callable[..., Any], one_node: None, tmp_path: Path) -> None:
    keys = ("env.train.fault=reward", f"runner.logger.log_path={tmp_path}")
    run = start_run("gym_cartpole_ppo_mlp", *TINY, *BROKEN, *keys, env=PLUGIN | {"RAY_ADDRESS": one_node})
    fails(run, "not finite")


def test_a_worker_that_cannot_start_is_named_with_its_reason(
    start_run: Callable[..., Any], one_node: str, tmp_path: Path
) -> None:
    keys = ("env.train.fault=init", f"runner.logger.log_path={tmp_path}")
    run = start_run("gym_cartpole_ppo_mlp", *TINY, *BROKEN, *keys, env=PLUGIN | {"RAY_ADDRESS": one_node})
    fails(run, "EnvGroup", "the robot is not plugged in")


def test_a_used_experiment_folder_is_refused_with_the_ways_out(start_run: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "gym_cartpole_ppo_mlp"
    folder.mkdir()
    (folder / "metrics.jsonl").write_text(json.dumps({"step": 1, "time_seconds": 1.0}) + "\n")
    run = start_run("gym_cartpole_ppo_mlp", *TINY, f"runner.logger.log_path={tmp_path}")
    fails(run, "runner.resume_dir=auto", "runner.overwrite=true")


@pytest.mark.timeout(500)
def test_sigterm_saves_the_last_whole_step_and_ends_within_seconds(
    start_run: Callable[..., Any], train: Callable[..., Any], tmp_path: Path
) -> None:
    keys = (*TINY, "runner.val_check_interval=-1")
    log_path = f"runner.logger.log_path={tmp_path}"
    run = start_run("gym_cartpole_ppo_mlp", *keys, "runner.max_epochs=100000", log_path)
    folder = tmp_path / "gym_cartpole_ppo_mlp"
    metrics = folder / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while not (metrics.exists() and len(metrics.read_text().splitlines()) >= 4):
        assert time.monotonic() < deadline, "the run did not make three steps"
        assert run.process.poll() is None, (run.wait(), run.output[-4000:])
        time.sleep(0.2)
    run.process.send_signal(signal.SIGTERM)
    assert run.wait(timeout=30) == 143, run.output[-4000:]
    latest = (folder / "checkpoints" / "LATEST").read_text().strip()
    assert (folder / "checkpoints" / latest / "COMPLETE").exists()
    step = int(latest.removeprefix("global_step_"))
    assert step >= 2
    assert str(folder / "checkpoints" / latest) in run.output.replace("\n", "")
    assert not run.survivors()
    # Resumed, it goes on as a run that no one has stopped, although it was amid a rollout.
    keys = (*keys, f"runner.max_epochs={step + 2}")
    train("gym_cartpole_ppo_mlp", *keys, "runner.resume_dir=auto", log_path=tmp_path)
    assert read_metrics(folder) == read_metrics(train("gym_cartpole_ppo_mlp", *keys))
    assert "new episodes" not in (folder / "events.jsonl").read_text()


@pytest.mark.parametrize("sign", ["ray/session_latest/logs/raylet.out", "gym_cartpole_ppo_mlp/worker_logs/*.log"])
def test_sigterm_before_the_loop_begins_ends_the_run_as_cleanly(
    start_run: Callable[..., Any], tmp_path: Path, sign: str
) -> None:
    run = start_run("gym_cartpole_ppo_mlp", *TINY, f"runner.logger.log_path={tmp_path}")
    folders = (Path(run.ray_folder), tmp_path)
    deadline = time.monotonic() + 120
    while not any(list(folder.glob(sign)) for folder in folders):
        assert time.monotonic() < deadline, f"{sign} did not appear"
        assert run.process.poll() is None, (run.wait(), run.output[-4000:])
        time.sleep(0.01)
    run.process.send_signal(signal.SIGTERM)
    assert run.wait(timeout=60) == 143, run.output[-4000:]
    assert "Terminated." in run.output
    assert "stack" not in run.output
    # Ray's own agents notice the death of their raylet, where it had hardly started, a minute later.
    assert not [process for process in run.survivors() if not is_agent_of_ray(process)]


def test_sizes_that_are_not_the_environments_are_told_with_both(
    start_run: Callable[..., Any], one_node: None, tmp_path: Path
) -> None:
    keys = (*TINY, "actor.model.obs_dim=5", f"runner.logger.log_path={tmp_path}")
    run = start_run("gym_cartpole_ppo_mlp", *keys, env={"RAY_ADDRESS": one_node})
    fails(run, "actor.model.obs_dim: received 5; env.train has 4.", "leave obs_dim, action_dim and discrete out")
    assert "Traceback" not in run.output
