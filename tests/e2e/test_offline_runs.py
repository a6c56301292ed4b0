"""The offline loop as a whole: what a run leaves behind, placement."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.data.datasets.minari import write_minari
from rlinf.runners.launch import launch_offline
from tests.e2e.conftest import read_metrics

pytestmark = pytest.mark.timeout(400)
IQL, BC = "gym_pendulum_iql_mlp", "gym_pendulum_bc_mlp"
TINY = (
    "runner.max_epochs=2",
    "runner.val_check_interval=2",
    "env.eval.total_num_envs=8",
    "env.eval.max_steps_per_rollout_epoch=64",
    "env.eval.max_episode_steps=64",
    "algorithm.update_epoch=3",
    "actor.global_batch_size=64",
    "actor.micro_batch_size=32",
)
SPLIT = ("cluster.cpu_slots_per_node=2", "cluster.component_placement={actor: 0-1, rollout: 0, env: 0}")


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("h5py", reason="needs the package h5py")
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("data") / "pendulum"
    ends = np.arange(50) == 49
    arrays = [
        {
            "observations": rng.normal(size=(51, 3)),
            "actions": rng.uniform(-2, 2, size=(50, 1)),
            "rewards": -rng.random(50),
            "terminations": ends & False,
            "truncations": ends,
        }
        for _ in range(4)
    ]
    write_minari(folder, [(episode, {}) for episode in arrays], {})
    return folder


@pytest.fixture(scope="module")
def run_recipe(one_node: None, recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    def run(*overrides: str, recipe: str = IQL, log_path: Path | None = None) -> Any:
        log_path = log_path or tmp_path_factory.mktemp("run")
        keys = [*TINY, f"data.path={recordings}", f"runner.logger.log_path={log_path}", *overrides]
        launch_offline(validate_cfg(load_recipe(recipe, keys)))
        return log_path / recipe

    return run


@pytest.fixture(scope="module")
def finished(run_recipe: Callable[..., Any]) -> Any:
    """A run of two steps."""
    return run_recipe()


def test_an_offline_run_trains_and_evaluates(finished: Any) -> None:
    records = read_metrics(finished)
    assert [record["step"] for record in records] == [0, 1, 2]
    assert records[0]["eval/return"] < 0
    assert records[2]["eval/return"] != records[0]["eval/return"]
    assert records[1]["train/stored"] == 200
    assert {"train/critic_loss", "train/value_loss", "train/actor_loss", "train/advantage_weight"} <= records[1].keys()
    assert (finished / "checkpoints/global_step_2/COMPLETE").exists()


def test_two_actor_ranks_clone_as_one_does(run_recipe: Callable[..., Any]) -> None:
    one, two = (read_metrics(run_recipe(*keys, recipe=BC)) for keys in ((), SPLIT))
    for name in ("train/imitation_loss", "eval/return"):
        assert two[2][name] == pytest.approx(one[2][name], rel=1e-3)
