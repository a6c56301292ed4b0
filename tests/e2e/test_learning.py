"""Recipes reach what the README says of them; minutes each. One seed, or with ``--long`` the three of the gallery."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import ASYNC_ENTRY, REPO, read_metrics

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400)]
LONG_SEEDS = 3


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(LONG_SEEDS if metafunc.config.getoption("--long") else 1))


def test_sac_swings_up_the_pendulum_within_15000_environment_steps(
    start_run: Callable[..., Any], tmp_path: Path, seed: int
) -> None:
    keys = (f"actor.seed={seed}", f"env.train.seed={seed}", f"runner.logger.log_path={tmp_path}")
    run = start_run("gym_pendulum_sac_mlp", *keys)
    assert run.wait(timeout=1000) == 0, run.output[-4000:]
    last = read_metrics(tmp_path / "gym_pendulum_sac_mlp")[-1]
    assert last["train/replay_size"] <= 15_000  # one transition for each environment step
    assert last["eval/return"] >= -200


@pytest.mark.parametrize("recipe", ["gym_pendulum_td3_mlp", "gym_pendulum_crossq_mlp", "gym_pendulum_sac_flow"])
def test_the_pendulum_swings_up_within_10000_environment_steps(
    start_run: Callable[..., Any], tmp_path: Path, recipe: str, seed: int
) -> None:
    run = start_run(recipe, f"actor.seed={seed}", f"env.train.seed={seed}", f"runner.logger.log_path={tmp_path}")
    assert run.wait(timeout=1000) == 0, run.output[-4000:]
    last = read_metrics(tmp_path / recipe)[-1]
    assert last["train/replay_size"] <= 10_000
    assert last["eval/return"] >= -200


def test_demonstrations_show_a_goal_that_sac_alone_does_not_find(
    start_run: Callable[..., Any], tmp_path: Path, seed: int
) -> None:
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
def pendulum_recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
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


def test_implicit_q_learning_improves_on_the_recordings_that_cloning_imitates(
    start_run: Callable[..., Any], pendulum_recordings: Path, tmp_path: Path, seed: int
) -> None:
    returns = {}
    for recipe in ("gym_pendulum_iql_mlp", "gym_pendulum_bc_mlp"):
        keys = (f"actor.seed={seed}", f"data.path={pendulum_recordings}", f"runner.logger.log_path={tmp_path}")
        run = start_run(recipe, *keys, entry=REPO / "examples/embodiment/train_offline.py")
        assert run.wait(timeout=1000) == 0, run.output[-4000:]
        returns[recipe] = read_metrics(tmp_path / recipe)[-1]["eval/return"]
    assert returns["gym_pendulum_iql_mlp"] >= -250
    assert returns["gym_pendulum_iql_mlp"] >= returns["gym_pendulum_bc_mlp"] + 300


def test_velocities_alone_improve_a_flow_policy(start_run: Callable[..., Any], tmp_path: Path, seed: int) -> None:
    recipe = "gym_pendulum_nft_flow"
    run = start_run(recipe, f"actor.seed={seed}", f"env.train.seed={seed}", f"runner.logger.log_path={tmp_path}")
    assert run.wait(timeout=2000) == 0, run.output[-4000:]
    records = read_metrics(tmp_path / recipe)
    assert records[0]["eval/return"] <= -1000
    assert records[-1]["eval/return"] >= -400


@pytest.mark.parametrize(
    ("recipe", "package"),
    [
        ("pixel_reach_ppo_cnn", "torch"),
        ("gym_fetchreach_ppo_mlp", "gymnasium_robotics"),
        ("frankasim_pickcube_ppo_mlp", "mujoco"),
    ],
)
def test_the_goal_is_reached_from_nearly_every_start(
    start_run: Callable[..., Any], tmp_path: Path, recipe: str, package: str, seed: int
) -> None:
    pytest.importorskip(package, reason=f"needs the package {package}")
    run = start_run(recipe, f"actor.seed={seed}", f"env.train.seed={seed}", f"runner.logger.log_path={tmp_path}")
    assert run.wait(timeout=2000) == 0, run.output[-4000:]
    assert read_metrics(tmp_path / recipe)[-1]["eval/success_at_end"] >= 0.9


@pytest.fixture(scope="module")
def pixel_classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train the classifier of success, as ``train_reward_model.py`` says."""
    path = tmp_path_factory.mktemp("classifier") / "classifier.pt"
    command = [sys.executable, str(REPO / "examples/reward/train_reward_model.py"), "pixel_reach_ppo_reward_model"]
    subprocess.run([*command, "--image-keys", "main_images", "--output", str(path)], check=True)
    return path


def test_success_rises_where_only_a_classifier_rewards(
    start_run: Callable[..., Any], pixel_classifier: Path, tmp_path: Path, seed: int
) -> None:
    recipe = "pixel_reach_ppo_reward_model"
    keys = (f"actor.seed={seed}", f"env.train.seed={seed}", f"reward.rewards.success.model_path={pixel_classifier}")
    run = start_run(recipe, *keys, f"runner.logger.log_path={tmp_path}")
    assert run.wait(timeout=2000) == 0, run.output[-4000:]
    records = read_metrics(tmp_path / recipe)
    assert records[-1]["eval/success_once"] >= max(0.9, records[0]["eval/success_once"] + 0.3)


@pytest.mark.maniskill
def test_success_of_pushing_a_cube_rises(start_run: Callable[..., Any], tmp_path: Path) -> None:
    recipe = "maniskill_pushcube_ppo_mlp"
    run = start_run(recipe, f"runner.logger.log_path={tmp_path}")
    assert run.wait(timeout=2300) == 0, run.output[-4000:]
    curve = [r["eval/success_once"] for r in read_metrics(tmp_path / recipe) if "eval/success_once" in r]
    assert max(curve) >= curve[0] + 0.3


def test_interventions_teach_two_arms_a_sparse_goal_and_become_rare(
    start_run: Callable[..., Any], tmp_path: Path, seed: int
) -> None:
    recipe = "realworld_franka_dummy_rlpd_mlp"
    run = start_run(recipe, f"actor.seed={seed}", f"env.train.seed={seed}", f"runner.logger.log_path={tmp_path}")
    assert run.wait(timeout=1000) == 0, run.output[-4000:]
    records = read_metrics(tmp_path / recipe)
    assert records[-1]["eval/success_once"] >= 0.85
    assert records[-1]["rollout/intervened"] <= 0.1 < records[1]["rollout/intervened"]


@pytest.mark.metaworld
@pytest.mark.parametrize("recipe", ["metaworld_reach_dagger_mlp", "metaworld_reach_hgdagger_mlp"])
def test_dagger_reaches_as_its_expert_does(
    start_run: Callable[..., Any], tmp_path: Path, recipe: str, seed: int
) -> None:
    run = start_run(recipe, f"actor.seed={seed}", f"env.train.seed={seed}", f"runner.logger.log_path={tmp_path}")
    assert run.wait(timeout=1000) == 0, run.output[-4000:]
    assert read_metrics(tmp_path / recipe)[-1]["eval/success_once"] >= 0.95


@pytest.mark.parametrize(
    ("recipe", "least"), [("gym_cartpole_async_ppo_mlp", 475), ("gym_pendulum_async_sac_mlp", -200)]
)
def test_asynchronous_training_reaches_what_training_in_turns_does(
    start_run: Callable[..., Any], tmp_path: Path, recipe: str, least: int, seed: int
) -> None:
    keys = (f"actor.seed={seed}", f"env.train.seed={seed}", f"runner.logger.log_path={tmp_path}")
    run = start_run(recipe, *keys, entry=ASYNC_ENTRY)
    assert run.wait(timeout=1000) == 0, run.output[-4000:]
    assert read_metrics(tmp_path / recipe)[-1]["eval/return"] >= least
