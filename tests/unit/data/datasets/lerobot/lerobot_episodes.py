"""Episodes of a toy robot, and data sets of them."""

from pathlib import Path

import numpy as np

from rlinf.data.datasets.lerobot import LeRobotEpisode, LeRobotWriter
from rlinf.data.datasets.lerobot.writer import WriterOptions

CAMERA = "observation.images.main"


def make_episode(length: int, seed: int = 0, task: str = "reach", images: bool = True) -> LeRobotEpisode:
    rng = np.random.default_rng(seed)
    columns = {
        "observation.state": rng.normal(size=(length, 3)).astype(np.float32),
        "action": rng.normal(size=(length, 2)).astype(np.float32),
        "next.reward": rng.normal(size=(length, 1)).astype(np.float32),
        "next.done": np.arange(length)[:, None] == length - 1,
    }
    if images:
        # Flat images, each of a colour of its own: a video keeps them but for rounding.
        colours = rng.integers(40, 216, size=(length, 1, 1, 3))
        columns[CAMERA] = np.broadcast_to(colours, (length, 16, 24, 3)).astype(np.uint8)
    return LeRobotEpisode(columns, task)


EPISODES = [make_episode(5, 0), make_episode(1, 1, "push"), make_episode(7, 2)]


def write(root: Path, episodes: list[LeRobotEpisode] = EPISODES, **options: int | bool) -> Path:
    with LeRobotWriter(root, WriterOptions(fps=10, robot_type="toy", **options)) as writer:
        for episode in episodes:
            writer.add(episode)
    return root


def assert_like(found: np.ndarray, expected: np.ndarray, video: bool) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.astype(float), expected.astype(float), atol=8 if video else 0)
