"""Collected episodes that were continued are whole."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batch_env import make_config, make_single
from saved_episodes import play

from rlinf.config.schema.env import DataCollectionConfig
from rlinf.envs.base import VectorEnv


def test_collected_episodes_are_whole_too(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from rlinf.data.datasets.lerobot import LeRobotDataset

    def config(name: str) -> Any:
        return make_config(data_collection=DataCollectionConfig(enabled=True, save_dir=str(tmp_path / name)))

    with make_single(config("killed"), num_envs=4) as env:
        env.reset(0)
        play(env, range(2))
        state = env.state_dict()
        assert state is not None
        steps = state["tracker"]["steps"]
    with make_single(config("resumed"), num_envs=4) as other:
        other.load_state_dict(state)
        after = play(other, range(50, 56))
        other.finish_collection()
    part = LeRobotDataset(tmp_path / "resumed" / "part_000000")
    lengths = [int(episode["episode_len"]) for step in after for episode in step.episodes]
    assert part.num_episodes == len(lengths) > 0
    assert part.num_frames == sum(lengths)
    assert steps.any()


def test_a_training_that_goes_on_collects_each_episode_once(tmp_path: Path) -> None:
    """A run dies in its third step, whose checkpoint is of the first; the other is never disturbed."""
    pytest.importorskip("pyarrow")
    from rlinf.data.datasets.lerobot import LeRobotDataset

    def config(name: str) -> Any:
        return make_config(data_collection=DataCollectionConfig(enabled=True, save_dir=str(tmp_path / name)))

    def train(env: VectorEnv, steps: range) -> None:
        for step in steps:
            env.begin_step(step)
            play(env, range(10 * step, 10 * step + 3))
            env.publish_collection()

    with make_single(config("whole"), num_envs=4) as env:
        env.reset(0)
        train(env, range(1, 4))
    with make_single(config("killed"), num_envs=4) as env:
        env.reset(0)
        train(env, range(1, 2))
        state = env.state_dict()
        assert state is not None
        train(env, range(2, 3))
        env.begin_step(3)
        play(env, range(30, 32))
        shutil.copytree(tmp_path / "killed", tmp_path / "resumed")  # as a run that is killed leaves it
    assert any(path.name.endswith(".tmp") for path in (tmp_path / "resumed").iterdir())
    with make_single(config("resumed"), num_envs=4) as env:
        env.rewind_collection(1)
        assert [path.name for path in (tmp_path / "resumed").iterdir()] == ["part_000000_step_000001"]
        env.load_state_dict(state)
        train(env, range(2, 4))
    names = [f"part_000000_step_{step:06d}" for step in range(1, 4)]
    assert sorted(path.name for path in (tmp_path / "resumed").iterdir()) == names
    for name in names:
        one, other = (LeRobotDataset(tmp_path / run / name) for run in ("whole", "resumed"))
        assert one.num_episodes == other.num_episodes > 0
        for column in ("observation.state", "action", "next.reward", "episode_index"):
            np.testing.assert_array_equal(one.column(column), other.column(column))
