"""Statistics are those of all frames, and of whole episodes for images."""

import numpy as np
from lerobot_episodes import CAMERA, EPISODES

from rlinf.data.datasets.lerobot import LeRobotDataset
from rlinf.data.datasets.lerobot.format import Feature
from rlinf.data.datasets.lerobot.stats import episode_stats


def test_statistics_are_those_of_all_frames(dataset: LeRobotDataset) -> None:
    for name in ("observation.state", "next.reward"):
        whole = np.concatenate([episode.columns[name] for episode in EPISODES]).astype(np.float64)
        found = dataset.stats[name]
        np.testing.assert_allclose(found["mean"], whole.mean(0))
        np.testing.assert_allclose(found["std"], whole.std(0))
        np.testing.assert_allclose(found["min"], whole.min(0))
        np.testing.assert_allclose(found["max"], whole.max(0))
        assert found["count"].tolist() == [13]
    images = np.concatenate([episode.columns[CAMERA] for episode in EPISODES]) / 255
    np.testing.assert_allclose(dataset.stats[CAMERA]["mean"].reshape(-1), images.mean((0, 1, 2)))
    assert dataset.stats[CAMERA]["std"].shape == (3, 1, 1)


def test_statistics_of_images_are_from_the_whole_episode() -> None:
    shades = np.broadcast_to(np.arange(250, dtype=np.uint8)[:, None, None, None], (250, 2, 2, 3))
    stats = episode_stats({CAMERA: shades}, {CAMERA: Feature("image", (2, 2, 3))})[CAMERA]
    assert stats["count"].tolist() == [100]
    assert (float(stats["min"].max()), float(stats["max"].min())) == (0.0, 249 / 255)
    np.testing.assert_allclose(stats["mean"], 124.5 / 255, atol=0.01)
