"""The embodied loop as a whole: what a run leaves behind, repeatability, placement, resume."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rlinf.data.datasets.lerobot import LeRobotDataset, check_dataset
from tests.e2e.conftest import TINY, read_metrics

pytestmark = pytest.mark.timeout(400)
SPLIT = (
    "cluster.cpu_slots_per_node=2",
    "cluster.component_placement={actor: 0-1, rollout: 0, env: 0-1}",
    "rollout.pipeline_stage_num=2",
)


@pytest.fixture(scope="module")
def run_recipe(train: Callable[..., Any]) -> Callable[..., Any]:
    def run(*overrides: str, recipe: str = "gym_cartpole_ppo_mlp", log_path: Path | None = None) -> Any:
        return train(recipe, *TINY, *overrides, log_path=log_path)

    return run


@pytest.fixture(scope="module")
def finished(run_recipe: Callable[..., Any]) -> Any:
    """A run of two steps."""
    return run_recipe()


def test_a_run_leaves_metrics_checkpoint_and_logs(finished: Any) -> None:
    records = read_metrics(finished)
    assert [record["step"] for record in records] == [0, 1, 2]
    assert records[0]["eval/return"] > 0
    assert {"eval/return", "env/return", "train/actor_loss", "train/grad_norm", "rollout/advantage"} <= records[
        2
    ].keys()
    raw = json.loads((finished / "metrics.jsonl").read_text().splitlines()[1])
    assert raw["time/env_steps_per_second"] > 0
    assert {"time/actor/training", "time/rollout/generate", "time/env/interact"} <= raw.keys()
    checkpoint = finished / "checkpoints" / "global_step_2"
    assert (checkpoint / "COMPLETE").exists()
    assert (checkpoint / "actor" / ".metadata").exists()
    assert list((finished / "tensorboard").iterdir())
    logs = {path.name for path in (finished / "worker_logs").iterdir()}
    assert {"ActorGroup_0.log", "RolloutGroup_0.log", "EnvGroup_0.log"} <= logs


def test_another_seed_gives_others(finished: Any, run_recipe: Callable[..., Any]) -> None:
    assert read_metrics(run_recipe("actor.seed=7", "runner.max_epochs=1"))[1] != read_metrics(finished)[1]


def test_one_seed_gives_the_same_numbers_again_over_split_ranks(run_recipe: Callable[..., Any]) -> None:
    first, second = read_metrics(run_recipe(*SPLIT)), read_metrics(run_recipe(*SPLIT))
    assert [record["step"] for record in first] == [0, 1, 2]
    assert first == second


def test_a_resumed_run_equals_an_undisturbed_one(run_recipe: Callable[..., Any], tmp_path: Path) -> None:
    keys = ("actor.model.normalize_obs=true", "runner.val_check_interval=2")
    undisturbed = run_recipe(*keys, "runner.save_interval=-1", "runner.max_epochs=4")
    # Saving after every step leaves the episodes, which are longer than a step, as they are.
    keys = (*keys, "runner.save_interval=1")
    folder = run_recipe(*keys, log_path=tmp_path)
    # A run that was killed in its third step: it has logged that step, and is not there any more.
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 3, "time_seconds": 1.0, "train/actor_loss": 123.0}\n{"step": 4, "ti')
    shutil.rmtree(folder / "tensorboard")
    run_recipe(*keys, "runner.max_epochs=4", "runner.resume_dir=auto", log_path=tmp_path)
    assert read_metrics(folder) == read_metrics(undisturbed)
    assert "new episodes" not in (folder / "events.jsonl").read_text()


def test_off_policy_ranks_fill_their_replays_and_then_learn(run_recipe: Callable[..., Any]) -> None:
    keys = (
        "cluster.cpu_slots_per_node=2",
        "cluster.component_placement={actor: 0-1, rollout: 0, env: 0-1}",
        "algorithm.replay_buffer.min_buffer_size=400",
    )
    records = read_metrics(run_recipe(*keys, recipe="gym_pendulum_sac_mlp"))
    assert [record.get("train/replay_size") for record in records] == [None, 256, 512]
    assert ["train/critic_loss" in record for record in records] == [False, False, True]


def test_a_saved_policy_can_be_evaluated(finished: Any, run_recipe: Callable[..., Any], tmp_path: Path) -> None:
    keys = ("runner.only_eval=true", f"runner.ckpt_path={finished}/checkpoints/global_step_2")
    folder = run_recipe(*keys, log_path=tmp_path)
    expected = {name: value for name, value in read_metrics(finished)[2].items() if name.startswith("eval/")}
    assert read_metrics(folder / "eval_only" / "weights_1") == [{"step": 0, **expected}]


def test_the_run_stops_at_its_goal(run_recipe: Callable[..., Any]) -> None:
    records = read_metrics(run_recipe("runner.max_epochs=50", "runner.stop_at={eval/return: 1.0}"))
    assert [record["step"] for record in records] == [0]


def test_episodes_of_several_workers_become_one_data_set(run_recipe: Callable[..., Any]) -> None:
    folder = run_recipe(
        "cluster.cpu_slots_per_node=2",
        "cluster.component_placement={actor: 0, rollout: 0, env: 0-1}",
        "runner.only_eval=true",
        "env.eval.total_num_envs=4",
        "env.eval.data_collection.enabled=true",
        "env.eval.data_collection.policy=sample",
        "runner.eval_initial_policy=true",
    )
    check_dataset(folder / "dataset")
    dataset = LeRobotDataset(folder / "dataset")
    assert dataset.num_episodes == 4
    assert dataset.features["action"].dtype == "int64"
    assert int(dataset.column("next.done").sum()) == 4
    assert not list(folder.glob(".dataset*"))


def test_training_collects_its_episodes_and_goes_on_where_it_is_continued(
    run_recipe: Callable[..., Any], tmp_path: Path
) -> None:
    collecting = ("env.train.data_collection.enabled=true", "runner.save_interval=1")
    whole = run_recipe(*collecting, "runner.max_epochs=2") / "dataset"
    run_recipe(*collecting, "runner.max_epochs=1", log_path=tmp_path)
    resumed = run_recipe(*collecting, "runner.max_epochs=2", "runner.resume_dir=auto", log_path=tmp_path) / "dataset"
    check_dataset(resumed)
    one, other = LeRobotDataset(whole), LeRobotDataset(resumed)
    assert one.num_episodes == other.num_episodes > 0
    for column in ("observation.state", "action", "episode_index"):
        np.testing.assert_array_equal(one.column(column), other.column(column))


def test_sizes_that_the_recipe_leaves_out_come_from_the_environment(run_recipe: Callable[..., Any]) -> None:
    folder = run_recipe("~actor.model.obs_dim", "~actor.model.action_dim", "~actor.model.discrete")
    model = yaml.safe_load((folder / "config.yaml").read_text())["actor"]["model"]
    assert (model["obs_dim"], model["action_dim"], model["discrete"]) == (4, 2, True)


def test_a_policy_comes_nearer_to_a_teacher_that_scores_its_actions(train: Callable[..., Path], tmp_path: Path) -> None:
    taught = train("gym_cartpole_ppo_mlp", *TINY, "runner.save_interval=2")
    keys = (
        *TINY,
        "algorithm.update_epoch=8",
        "runner.max_epochs=4",
        "~runner.stop_at",
        f"algorithm.teacher.ckpt_path={taught}/checkpoints/global_step_2",
    )
    path = train("gym_cartpole_opd_mlp", *keys)
    divergences = [record["rollout/kl_reward"] for record in read_metrics(path) if "rollout/kl_reward" in record]
    assert len(divergences) == 4
    assert all(abs(value) < 1 for value in divergences)
    assert read_metrics(path)[-1]["train/actor_reverse_kl"] == pytest.approx(divergences[-1], abs=1e-5)


def test_a_flow_learns_from_images_off_policy(train: Callable[..., Path]) -> None:
    keys = (
        *("runner.max_epochs=3", "runner.val_check_interval=-1", "~runner.stop_at", "algorithm.update_epoch=2"),
        *("algorithm.replay_buffer.min_buffer_size=64", "actor.global_batch_size=16", "actor.micro_batch_size=16"),
    )
    records = read_metrics(train("pixel_reach_sac_flow_cnn", *keys))
    updates = [record["train/critic_loss"] for record in records if "train/critic_loss" in record]
    assert updates
    assert all(value > 0 for value in updates)
