"""Data sets that call their columns otherwise, as those that published policies were trained on do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from lerobot_episodes import EPISODES, write
from published_set import COLUMNS, LENGTHS, action_of, image_of, state_of, write_published_set

from rlinf.config.schema.data import LeRobotDataConfig, MixtureEntryConfig
from rlinf.data.datasets.lerobot import LeRobotDataset
from rlinf.data.datasets.lerobot.episodes import read_lerobot
from rlinf.data.frames import FrameStream
from rlinf.errors import DatasetError

CAMERAS = ["main_images", "wrist_images"]


def stream(cfg: LeRobotDataConfig, cameras: list[str] = CAMERAS) -> FrameStream:
    return FrameStream(cfg, horizon=2, image_keys=cameras, seed=3)


def test_columns_are_found_under_the_names_that_the_set_gives_them(tmp_path: Path) -> None:
    dataset = LeRobotDataset(write_published_set(tmp_path / "libero"), COLUMNS)
    cameras = {"observation.images.main": "image", "observation.images.wrist": "wrist_image"}
    indices = np.array([5, 0])
    found = dataset.frames(indices, [*cameras, "observation.state", "action"])
    for name, camera in cameras.items():
        np.testing.assert_array_equal(found[name], [image_of(camera, frame) for frame in (5, 0)])
    np.testing.assert_allclose(found["observation.state"], [state_of(5), state_of(0)], rtol=1e-6)
    np.testing.assert_allclose(found["action"], [action_of(5), action_of(0)], rtol=1e-6)
    episode = dataset.episode(1)
    assert sorted(episode.columns) == ["action", *sorted(cameras), "observation.state"]
    np.testing.assert_array_equal(episode.columns["observation.images.wrist"][2], image_of("wrist_image", 6))
    assert episode.task == "open the drawer"


def test_statistics_of_version_2_0_follow_the_names(tmp_path: Path) -> None:
    dataset = LeRobotDataset(write_published_set(tmp_path / "libero"), COLUMNS)
    assert sorted(dataset.stats) == ["action", "observation.state"]
    actions = np.array([action_of(frame) for frame in range(sum(LENGTHS))])
    np.testing.assert_allclose(dataset.stats["action"]["mean"], actions.mean(0))
    np.testing.assert_allclose(dataset.stats["action"]["max"], actions.max(0))


def test_frames_of_a_published_set_are_learned_from(tmp_path: Path) -> None:
    frames = stream(
        LeRobotDataConfig(format="lerobot", path=str(write_published_set(tmp_path / "libero")), columns=COLUMNS)
    )
    _, chosen = frames.sample(0, 6)
    batch = frames.read(0, 6, slice(0, 6))
    np.testing.assert_allclose(batch.obs["states"], [state_of(int(frame)) for frame in chosen], rtol=1e-6)
    np.testing.assert_allclose(batch.actions[:, 0], [action_of(int(frame)) for frame in chosen], rtol=1e-6)
    for key, camera in (("main_images", "image"), ("wrist_images", "wrist_image")):
        np.testing.assert_array_equal(batch.obs[key], [image_of(camera, int(frame)) for frame in chosen])


def test_offline_learners_find_the_columns_too(tmp_path: Path) -> None:
    cfg = LeRobotDataConfig(format="lerobot", path=str(write_published_set(tmp_path / "libero")), columns=COLUMNS)
    first = next(iter(read_lerobot(cfg)))
    np.testing.assert_allclose(first.actions, [action_of(frame) for frame in range(LENGTHS[0] - 1)], rtol=1e-6)
    np.testing.assert_array_equal(first.obs["main_images"][1], image_of("image", 1))


def test_a_video_is_read_under_another_name(tmp_path: Path) -> None:
    root = write(tmp_path / "x", use_videos=True)
    expected = LeRobotDataset(root).episode(0).columns["observation.images.main"]
    renamed = LeRobotDataset(root, {"wrist_images": "observation.images.main"})
    assert "observation.images.main" not in renamed.features
    np.testing.assert_array_equal(renamed.episode(0).columns["observation.images.wrist"], expected)
    np.testing.assert_array_equal(
        renamed.frames(np.array([2]), ["observation.images.wrist"])["observation.images.wrist"], expected[2:3]
    )


def test_data_sets_of_a_mixture_have_names_of_their_own(tmp_path: Path) -> None:
    published = str(write_published_set(tmp_path / "libero"))
    again = str(write_published_set(tmp_path / "again"))
    mixture = [MixtureEntryConfig(path=again)]
    assert (
        len(stream(LeRobotDataConfig(format="lerobot", path=published, columns=COLUMNS, mixture=mixture)).datasets) == 2
    )
    swapped = COLUMNS | {"main_images": "wrist_image", "wrist_images": "image"}
    mixture = [MixtureEntryConfig(path=again, columns=swapped)]
    both = stream(LeRobotDataConfig(format="lerobot", path=published, columns=COLUMNS, mixture=mixture))
    sources, chosen = both.sample(0, 8)
    cameras = [("image", "wrist_image")[source] for source in sources]
    assert len(set(cameras)) == 2
    expected = [image_of(camera, int(frame)) for camera, frame in zip(cameras, chosen, strict=True)]
    np.testing.assert_array_equal(both.read(0, 8, slice(0, 8)).obs["main_images"], expected)


def test_a_column_that_is_not_there_is_told_with_those_that_are(tmp_path: Path) -> None:
    root = write_published_set(tmp_path / "libero")
    with pytest.raises(
        DatasetError, match=r"data\.columns: .* has no photo; its columns are image, wrist_image, state, actions\."
    ):
        LeRobotDataset(root, COLUMNS | {"main_images": "photo"})
    with pytest.raises(DatasetError, match=r"no observation\.images\.main.*data\.columns"):
        stream(LeRobotDataConfig(format="lerobot", path=str(root)))
    with pytest.raises(DatasetError, match=r"no column action; it has .*actions.*data\.columns\.actions"):
        stream(LeRobotDataConfig(format="lerobot", path=str(root), columns={"main_images": "image"}), ["main_images"])


def test_a_name_is_not_given_twice(tmp_path: Path) -> None:
    root = write(tmp_path / "x", EPISODES)
    with pytest.raises(DatasetError, match=r"has a column action of its own"):
        LeRobotDataset(root, {"actions": "next.reward"})
