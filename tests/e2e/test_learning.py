"""Recipes reach what the README says of them; minutes each."""

import subprocess
import sys

import pytest

from tests.e2e.conftest import ASYNC_ENTRY, REPO, read_metrics

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
@pytest.mark.parametrize("recipe", ["gym_pendulum_td3_mlp", "gym_pendulum_crossq_mlp", "gym_pendulum_sac_flow"])
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


@pytest.fixture(scope="module")
def pendulum_recordings(tmp_path_factory):
    """Record random actions and SAC on its way, as ``make_offline_data.py`` says of the pendulum."""
    folder = tmp_path_factory.mktemp("recordings")
    keys = ("runner.max_epochs=78", "runner.save_interval=26", "runner.keep_checkpoints=0")
    command = [sys.executable, str(REPO / "examples/embodiment/train_embodied_agent.py")]
    command += ["--config-name", "gym_pendulum_sac_mlp", f"runner.logger.log_path={folder}", *keys]
    subprocess.run(command, check=True)
    checkpoints = folder / "gym_pendulum_sac_mlp/checkpoints"
    sources = {"random": 80, **{checkpoints / f"global_step_{step}": n for step, n in ((26, 60), (52, 40), (78, 20))}}
    command = [sys.executable, str(REPO / "examples/embodiment/make_offline_data.py")]
    command += ["--config-name", "gym_pendulum_sac_mlp", "--out", str(folder / "data")]
    subprocess.run([*command, *(f"--source={place}={count}" for place, count in sources.items())], check=True)
    return folder / "data"


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_implicit_q_learning_improves_on_the_recordings_that_cloning_imitates(
    start_run, pendulum_recordings, tmp_path, seed
):
    returns = {}
    for recipe in ("gym_pendulum_iql_mlp", "gym_pendulum_bc_mlp"):
        keys = (f"actor.seed={seed}", f"data.path={pendulum_recordings}", f"runner.logger.log_path={tmp_path}")
        run = start_run(recipe, *keys, entry=REPO / "examples/embodiment/train_offline.py")
        assert run.wait(timeout=1000) == 0, run.output[-4000:]
        returns[recipe] = read_metrics(tmp_path / recipe)[-1]["eval/return"]
    assert returns["gym_pendulum_iql_mlp"] >= -400
    assert returns["gym_pendulum_iql_mlp"] >= returns["gym_pendulum_bc_mlp"] + 300


@pytest.mark.metaworld
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_dagger_reaches_as_its_expert_does(start_run, tmp_path, seed):
    recipe = "metaworld_reach_dagger_mlp"
    run = start_run(recipe, f"actor.seed={seed}", f"env.train.seed={seed}", f"runner.logger.log_path={tmp_path}")
    assert run.wait(timeout=1000) == 0, run.output[-4000:]
    assert read_metrics(tmp_path / recipe)[-1]["eval/success_once"] >= 0.95


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("recipe", "least"), [("gym_cartpole_async_ppo_mlp", 475), ("gym_pendulum_async_sac_mlp", -200)]
)
def test_asynchronous_training_reaches_what_training_in_turns_does(start_run, tmp_path, recipe, least, seed):
    keys = (f"actor.seed={seed}", f"env.train.seed={seed}", f"runner.logger.log_path={tmp_path}")
    run = start_run(recipe, *keys, entry=ASYNC_ENTRY)
    assert run.wait(timeout=1000) == 0, run.output[-4000:]
    assert read_metrics(tmp_path / recipe)[-1]["eval/return"] >= least
