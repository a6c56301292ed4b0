"""What is written follows the format: files of limited size, merged data sets, tasks without gaps."""

from pathlib import Path

import numpy as np
import pytest
from lerobot_episodes import CAMERA, EPISODES, make_episode, write

from rlinf.data.datasets.lerobot import LeRobotDataset, check_dataset, merge_datasets
from rlinf.data.datasets.lerobot.writer import WriterOptions
from rlinf.errors import DatasetError


def test_files_of_limited_size_follow_one_another(tmp_path: Path) -> None:
    root = write(tmp_path / "small", data_file_mb=0, video_file_mb=0, use_videos=True)
    check_dataset(root)
    assert len(list(root.glob("data/chunk-000/*.parquet"))) == 3
    assert len(list(root.glob(f"videos/{CAMERA}/chunk-000/*.mp4"))) == 3
    np.testing.assert_array_equal(
        LeRobotDataset(root).column("action"), np.concatenate([episode.columns["action"] for episode in EPISODES])
    )


def test_data_sets_are_merged_in_order(tmp_path: Path) -> None:
    parts = [write(tmp_path / "a", EPISODES[:1]), write(tmp_path / "b", EPISODES[1:])]
    merge_datasets(parts, tmp_path / "merged", WriterOptions(fps=10, robot_type="toy"))
    check_dataset(tmp_path / "merged")
    whole = write(tmp_path / "whole")
    assert (tmp_path / "merged/meta/info.json").read_text() == (whole / "meta/info.json").read_text()
    merged, expected = LeRobotDataset(tmp_path / "merged"), LeRobotDataset(whole)
    for name in expected.features:
        for kind, value in expected.stats[name].items():
            np.testing.assert_allclose(merged.stats[name][kind], value)


def test_nothing_is_left_of_a_data_set_that_failed(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="other features"):
        write(tmp_path / "x", [EPISODES[0], make_episode(3, images=False)])
    with pytest.raises(DatasetError, match="No episode"):
        write(tmp_path / "x", [])
    assert list(tmp_path.iterdir()) == []
    write(tmp_path / "x")
    with pytest.raises(DatasetError, match="exists"):
        write(tmp_path / "x")


def test_tasks_are_numbered_without_gaps(tmp_path: Path) -> None:
    dataset = LeRobotDataset(write(tmp_path / "x", [make_episode(2), make_episode(2), make_episode(2, task="push")]))
    assert dataset.tasks_of(np.array([0, 2, 4])) == ["reach", "reach", "push"]
    assert dataset.column("task_index").reshape(-1).tolist() == [0, 0, 0, 0, 1, 1]
