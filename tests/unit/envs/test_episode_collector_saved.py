"""Collected episodes that were continued are whole."""

from pathlib import Path
from typing import Any

import pytest
from batch_env import make_config, make_single
from saved_episodes import play

from rlinf.config.schema.env import DataCollectionConfig


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
