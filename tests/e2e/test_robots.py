"""Two Franka arms declared by a node group, stand-ins both, drive a run with interventions from end to end."""

from pathlib import Path

import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.data.datasets.lerobot import LeRobotDataset
from rlinf.data.replay.buffer import ReplayBuffer
from rlinf.runners.launch import launch_embodied
from tests.e2e.conftest import read_metrics
from tests.unit.config.checks.test_collect_task import WITHOUT_LEARNING

pytestmark = pytest.mark.timeout(400)
RECIPE = "realworld_franka_dummy_rlpd_mlp"
TINY = (
    "runner.max_epochs=2",
    "runner.val_check_interval=2",
    "algorithm.update_epoch=2",
    "algorithm.replay_buffer.min_buffer_size=10",
    "env.train.max_steps_per_rollout_epoch=20",
    "env.train.max_episode_steps=20",
    "env.train.wrappers.0.intervener.stall_steps=4",
    "env.train.wrappers.0.intervener.hold_steps=4",
    "env.eval.rollout_epoch=1",
    "env.eval.max_episode_steps=20",
    "env.eval.max_steps_per_rollout_epoch=20",
    "actor.global_batch_size=32",
    "actor.micro_batch_size=32",
    # The second robot's table stands elsewhere, and it begins closer to its target.
    "cluster.node_groups.0.hardware.configs.1.target_ee_pose=[0.4, 0.05, 0.1, 3.1416, 0.0, 0.0]",
    "cluster.node_groups.0.hardware.configs.1.reset_ee_pose=[0.4, 0.05, 0.2, 3.1416, 0.0, 0.0]",
)


@pytest.fixture(scope="module")
def folder(one_node: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run")
    launch_embodied(validate_cfg(load_recipe(RECIPE, [*TINY, f"runner.logger.log_path={path}"])))
    return path / RECIPE


def test_every_env_worker_is_placed_on_a_robot_of_its_own(folder: Path) -> None:
    logs = sorted(path.name for path in (folder / "worker_logs").glob("EnvGroup_*.log"))
    assert logs == ["EnvGroup_0.log", "EnvGroup_1.log"]


def test_both_robots_are_learned_from_and_evaluated(folder: Path) -> None:
    records = read_metrics(folder)
    assert [record["step"] for record in records] == [0, 1, 2]
    assert records[2]["train/replay_size"] == 80
    assert records[1]["env/episode_len"] == 20
    assert 0 < records[1]["rollout/intervened"] < 1
    assert "eval/success_once" in records[2]


def test_interventions_are_kept_apart_and_in_the_replay(folder: Path) -> None:
    actor = folder / "checkpoints" / "global_step_2" / "actor"
    replay, helped = (ReplayBuffer.open(actor / name).contents() for name in ("replay", "interventions"))
    records = read_metrics(folder)
    assert len(helped) == round(40 * sum(record["rollout/intervened"] for record in records[1:]))
    # What was executed, not what the policy wanted: the teacher's steps lead straight to the target.
    rows = {tuple(row) for row in replay.actions.flatten(1).tolist()}
    assert rows >= {tuple(row) for row in helped.actions.flatten(1).tolist()}
    goal = -helped.inputs["states"][:, :3]
    directions = goal / goal.norm(dim=-1, keepdim=True)
    assert (directions * helped.actions[:, 0]).sum(-1).min() > 0.99


def test_every_robot_begins_where_its_own_entry_says(folder: Path) -> None:
    replay = ReplayBuffer.open(folder / "checkpoints" / "global_step_2" / "actor" / "replay").contents()
    starts = replay.inputs["states"][:2, :3]  # relative to each robot's own target
    assert starts[:, 2].tolist() == pytest.approx([0.15, 0.1], abs=1e-5)
    assert starts[:, :2].abs().max() <= 0.15 + 1e-5


def test_an_operator_collects_without_an_actor(one_node: None, tmp_path: Path) -> None:
    overrides = [
        *WITHOUT_LEARNING,
        f"runner.logger.log_path={tmp_path}",
        "env.eval.rollout_epoch=1",
        "env.eval.wrappers=[{name: intervention, intervener: "
        "{intervener_type: scripted, policy: franka, takeover_probability: 1.0, release_share: 0.0}}]",
    ]
    metrics = launch_embodied(validate_cfg(load_recipe(RECIPE, overrides)))
    assert metrics["eval/success_once"] == 1.0
    # Nothing but the operator has moved the arms: a policy that rests never gets to the target.
    dataset = LeRobotDataset(tmp_path / RECIPE / "dataset")
    assert dataset.num_episodes == 2
    assert float(abs(dataset.column("action")).max()) > 0
