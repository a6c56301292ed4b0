"""What ours writes is read by the package that made the format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lerobot_episodes import CAMERA, EPISODES, write

pytestmark = pytest.mark.lerobot


@pytest.fixture(scope="module")
def package() -> Any:
    """Return the package's module of data sets.

    The build of torchvision that goes with it may be for another PyTorch; it registers shapes for these two operators
    even where it has no operators, and fails if nobody has declared them.
    """
    if not hasattr(torch.ops.torchvision, "qnms"):
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from lerobot.datasets import lerobot_dataset

    return lerobot_dataset


def test_every_frame_is_read_as_it_was_written(package: Any, tmp_path: Path) -> None:
    dataset = package.LeRobotDataset("rlinf/toy", root=write(tmp_path / "toy"))
    assert (len(dataset), dataset.num_episodes, dataset.fps) == (13, 3, 10)
    frames = iter(range(len(dataset)))
    for number, episode in enumerate(EPISODES):
        for index in range(len(episode)):
            frame = dataset[next(frames)]
            assert (frame["episode_index"], frame["frame_index"], frame["task"]) == (number, index, episode.task)
            for name in ("observation.state", "action", "next.reward", "next.done"):
                np.testing.assert_array_equal(frame[name].numpy().reshape(-1), episode.columns[name][index])
            picture = frame[CAMERA].numpy().transpose(1, 2, 0) * 255
            np.testing.assert_allclose(picture, episode.columns[CAMERA][index], atol=1e-4)
            assert frame["timestamp"].item() == pytest.approx(index / 10)


def test_its_statistics_are_those_of_the_frames(package: Any, tmp_path: Path) -> None:
    meta = package.LeRobotDataset("rlinf/toy", root=write(tmp_path / "toy")).meta
    actions = np.concatenate([episode.columns["action"] for episode in EPISODES])
    np.testing.assert_allclose(meta.stats["action"]["mean"], actions.mean(0), rtol=1e-5)
    np.testing.assert_allclose(meta.stats["action"]["max"], actions.max(0))


def test_it_finds_the_frames_of_videos(package: Any, tmp_path: Path) -> None:
    meta = package.LeRobotDataset("rlinf/toy", root=write(tmp_path / "toy", use_videos=True)).meta
    assert meta.video_keys == [CAMERA]
    for number, episode in enumerate(EPISODES):
        assert (meta.root / meta.get_video_file_path(number, CAMERA)).is_file()
        row = meta.episodes[number]
        duration = row[f"videos/{CAMERA}/to_timestamp"] - row[f"videos/{CAMERA}/from_timestamp"]
        assert duration == pytest.approx(len(episode) / 10)
