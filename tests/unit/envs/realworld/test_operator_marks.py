"""Keys by which an operator ends an episode, as a success or as a failure."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from rlinf.config.schema.env import DataCollectionConfig
from rlinf.config.schema.realworld import FrankaHardwareConfig, RobotEnvConfig
from rlinf.data.datasets.lerobot import LeRobotDataset
from rlinf.envs import make_vector_env
from rlinf.envs.realworld.franka import FrankaSingleEnv
from rlinf.envs.realworld.operator_marks import OperatorMarks
from rlinf.envs.realworld.robot import RobotSingleEnv
from rlinf.errors import MissingPackageError
from tests.unit.envs.realworld.robots import make_config

ROBOT = FrankaHardwareConfig(node_rank=0, robot_ip="r", camera_serials=["a"])
KEYS = {"target_ee_pose": None, "success_key": "space", "failure_key": "x"}


class Listener:
    """Stands for the keyboard of ``pynput``."""

    made: list["Listener"] = []

    def __init__(self, on_press: Any) -> None:
        self.on_press, self.is_running = on_press, False
        Listener.made.append(self)

    def start(self) -> None:
        self.is_running = True

    def stop(self) -> None:
        self.is_running = False


@pytest.fixture
def keyboard(monkeypatch: pytest.MonkeyPatch) -> type[Listener]:
    package: Any = ModuleType("pynput")
    module: Any = ModuleType("pynput.keyboard")
    module.Listener, Listener.made = Listener, []
    monkeypatch.setitem(sys.modules, "pynput", package)
    monkeypatch.setitem(sys.modules, "pynput.keyboard", module)
    return Listener


def press(name: str) -> None:
    """Press a key, as ``pynput`` tells it: letters have a ``char``, others a ``name``."""
    key = SimpleNamespace(char=name) if len(name) == 1 else SimpleNamespace(name=name)
    Listener.made[-1].on_press(key)


@pytest.mark.usefixtures("keyboard")
@pytest.mark.parametrize(("key", "success"), [("space", True), ("X", False)])
def test_a_key_ends_the_episode_as_the_operator_says(key: str, success: bool) -> None:
    env = FrankaSingleEnv(cfg=make_config(**KEYS), robot=ROBOT, is_declared=False, render=False)
    env.reset(0)
    assert env.step([0.0] * 7)[1:] == (0.0, False, False, False)
    press("a")
    assert env.step([0.0] * 7)[1:] == (0.0, False, False, False)
    press(key)
    assert env.step([0.0] * 7)[1:] == (float(success), True, False, success)
    assert env.step([0.0] * 7)[1:] == (0.0, False, False, False)
    press(key)
    env.reset(1)  # marked while the arm went back to its start
    assert env.step([0.0] * 7)[1:] == (0.0, False, False, False)
    env.close()
    assert not Listener.made[-1].is_running


@pytest.mark.usefixtures("keyboard")
def test_the_operator_knows_better_than_the_target() -> None:
    marks = OperatorMarks(make_config(success_key="y", failure_key="n"))
    assert marks.judge(True, 0.9) == (True, 0.9, True)
    press("n")
    assert marks.judge(True, 0.9) == (False, pytest.approx(-0.1), True)
    press("y")
    assert marks.judge(True, 1.0) == (True, 1.0, True)


@pytest.mark.usefixtures("keyboard")
def test_a_robot_of_another_kind_is_marked_alike() -> None:
    cfg = RobotEnvConfig(
        env_type="robot",
        client="rlinf.envs.realworld.dummy_robot:DummyRobot",
        state_dim=4,
        action_dim=4,
        num_cameras=0,
        total_num_envs=1,
        max_episode_steps=9,
        max_steps_per_rollout_epoch=9,
        success_key="y",
    )
    env = RobotSingleEnv(cfg=cfg, robot={}, render=False)
    env.reset(0)
    assert env.step([0.0] * 4)[2:] == (False, False, False)
    press("y")
    assert env.step([0.0] * 4)[2:] == (True, False, True)
    env.close()


@pytest.mark.usefixtures("keyboard")
def test_marked_episodes_are_the_successful_ones_of_a_data_set(tmp_path: Any) -> None:
    collection = DataCollectionConfig(enabled=True, save_dir=str(tmp_path), only_success=True)
    cfg = make_config(**KEYS, total_num_envs=1, max_episode_steps=4, data_collection=collection)
    with make_vector_env(cfg, num_envs=1) as env:
        env.reset(0)
        ended = []
        for number in range(8):
            if number in {1, 3}:
                press("space" if number == 1 else "x")
            ended += env.chunk_step(torch.zeros(1, 1, 7)).episodes
        env.finish_collection()
    assert [(episode["success_once"], episode["episode_len"]) for episode in ended] == [(1.0, 2), (0.0, 2), (0.0, 4)]
    dataset = LeRobotDataset(tmp_path / "part_000000")
    assert (dataset.num_episodes, dataset.num_frames) == (1, 2)
    assert dataset.column("next.success").ravel().tolist() == [False, True]


def test_without_keys_nothing_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynput", None)
    OperatorMarks(make_config()).close()
    with pytest.raises(MissingPackageError, match="success_key needs the package 'pynput"):
        OperatorMarks(make_config(failure_key="x"))
