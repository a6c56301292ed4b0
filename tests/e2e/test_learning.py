"""Recipes reach what the README says of them; minutes each."""

import subprocess
import sys

import pytest

from tests.e2e.conftest import REPO, read_metrics

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_sac_swings_up_the_pendulum_within_15000_environment_steps(start_run, tmp_path, seed):
    keys = (f"actor.seed={seed}", f"env.train.seed={seed}", f"runner.logger.log_path={tmp_path}")
    run = start_run("gym_pendulum_sac_mlp", *keys)
    assert run.wait(timeout=1000) == 0, run.output[-4000:]
    last = read_metrics(tmp_path / "gym_pendulum_sac_mlp")[-1]
    assert last["train/replay_size"] <= 15_000  # one transition for each environment step
    assert last["eval/return"] >= -200


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("recipe", ["gym_pendulum_td3_mlp", "gym_pendulum_crossq_mlp"])
def test_the_pendulum_swings_up_within_10000_environment_steps(start_run, tmp_path, recipe, seed):
    run = start_run(recipe, f"actor.seed={seed}", f"env.train.seed={seed}", f"runner.logger.log_path={tmp_path}")
    assert run.wait(timeout=1000) == 0, run.output[-4000:]
    last = read_metrics(tmp_path / recipe)[-1]
    assert last["train/replay_size"] <= 10_000
    assert last["eval/return"] >= -200


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_demonstrations_show_a_goal_that_sac_alone_does_not_find(start_run, tmp_path, seed):
    recipe, demos = "gym_mountain_car_rlpd_mlp", tmp_path / "demos"
    script = REPO / "examples/embodiment/demonstrate_mountain_car.py"
    subprocess.run([sys.executable, str(script), "--folder", str(demos)], check=True)
    returns = {}
    for name, key in {"rlpd": f"algorithm.demo_buffer.load_path={demos}", "alone": "~algorithm.demo_buffer"}.items():
        keys = (f"actor.seed={seed}", f"env.train.seed={seed}", f"runner.logger.log_path={tmp_path / name}", key)
        run = start_run(recipe, *keys)
        assert run.wait(timeout=1000) == 0, run.output[-4000:]
        returns[name] = read_metrics(tmp_path / name / recipe)[-1]["eval/return"]
    assert returns["rlpd"] >= 90
    assert returns["alone"] <= 10
