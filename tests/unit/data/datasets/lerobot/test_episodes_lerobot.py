"""What is collected is what offline learners read."""

from pathlib import Path

import numpy as np
import pytest
import torch

from rlinf.config.schema.data import LeRobotDataConfig
from rlinf.data.datasets.episodes import read_episodes
from rlinf.data.datasets.lerobot import LeRobotEpisode, LeRobotWriter
from rlinf.data.datasets.lerobot.writer import WriterOptions


def recorded(length: int, *, terminated: bool, discrete: bool = False) -> LeRobotEpisode:
    steps = np.arange(length)
    action = steps[:, None] % 2 if discrete else np.stack([steps, -steps], 1).astype(np.float32)
    return LeRobotEpisode(
        {
            "observation.state": steps[:, None].astype(np.float32),
            "observation.images.main": np.full((length, 16, 16, 3), 7, np.uint8),
            "action": action,
            "next.reward": 10 + steps[:, None].astype(np.float32),
            "next.terminated": (steps[:, None] == length - 1) & terminated,
        },
        "push",
    )


@pytest.mark.parametrize("discrete", [False, True])
def test_episodes_end_in_a_state_that_was_seen(discrete: bool, tmp_path: Path) -> None:
    with LeRobotWriter(tmp_path / "data", WriterOptions(fps=10)) as writer:
        for terminated in (True, False):
            writer.add(recorded(4, terminated=terminated, discrete=discrete))
    first, second = read_episodes(LeRobotDataConfig(format="lerobot", path=str(tmp_path / "data")))
    assert (first.terminated, second.terminated) == (True, False)
    assert first.rewards.tolist() == [10, 11, 12, 13]
    assert second.rewards.tolist() == [10, 11, 12]  # what followed the last action is not known
    assert second.obs["states"].flatten().tolist() == [0, 1, 2, 3]
    assert first.obs["states"].flatten().tolist() == [0, 1, 2, 3, 3]
    assert first.obs["task_descriptions"] == ["push"] * 5
    assert first.obs["main_images"].shape == (5, 16, 16, 3)
    assert first.obs["main_images"].dtype == torch.uint8
    expected = [0, 1, 0, 1] if discrete else [[0, 0], [1, -1], [2, -2], [3, -3]]
    assert first.actions.tolist() == expected
    assert first.actions.dtype == (torch.int64 if discrete else torch.float32)
