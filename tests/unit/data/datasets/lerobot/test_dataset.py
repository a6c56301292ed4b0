"""What is written is read back as it was, in both versions of the format."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lerobot_episodes import CAMERA, EPISODES, assert_like, write

from rlinf.data.datasets.lerobot import LeRobotDataset, check_dataset
from rlinf.data.datasets.lerobot.dataset import RecentEpisodes
from rlinf.errors import DatasetError


def test_what_is_written_passes_the_check_and_comes_back(dataset: LeRobotDataset) -> None:
    check_dataset(dataset.root)
    assert dataset.num_episodes == 3
    assert dataset.num_frames == 13
    assert dataset.tasks == ["reach", "push"]
    for number, expected in enumerate(EPISODES):
        found = dataset.episode(number)
        assert found.task == expected.task
        assert set(found.columns) == set(expected.columns)
        for name, values in expected.columns.items():
            assert_like(found.columns[name], values, dataset.features[name].dtype == "video")


def test_single_frames_are_those_of_their_episodes(dataset: LeRobotDataset) -> None:
    indices = np.array([12, 0, 5, 4])
    found = dataset.frames(indices, ["observation.state", CAMERA, "frame_index"])
    for name in ("observation.state", CAMERA):
        whole = np.concatenate([episode.columns[name] for episode in EPISODES])
        assert_like(found[name], whole[indices], dataset.features[name].dtype == "video")
    assert found["frame_index"].reshape(-1).tolist() == [6, 0, 0, 4]
    assert dataset.tasks_of(indices) == ["reach", "reach", "push", "reach"]


def test_version_2_1_is_read(tmp_path: Path) -> None:
    """The folder is laid out by hand, as the documentation of v2.1 has it."""
    (tmp_path / "meta").mkdir()
    (tmp_path / "data/chunk-000").mkdir(parents=True)
    scalar = {"shape": [1], "names": None}
    features = {
        "action": {"dtype": "float32", "shape": [2], "names": ["x", "y"]},
        "timestamp": scalar | {"dtype": "float32"},
    }
    features |= {name: scalar | {"dtype": "int64"} for name in ("frame_index", "episode_index", "index", "task_index")}
    info = {
        "codebase_version": "v2.1",
        "robot_type": None,
        "total_episodes": 11,
        "total_frames": 14,
        "total_tasks": 1,
        "total_videos": 0,
        "total_chunks": 1,
        "chunks_size": 1000,
        "fps": 10,
        "splits": {"train": "0:11"},
        "data_path": "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "video_path": None,
        "features": features,
    }
    (tmp_path / "meta/info.json").write_text(json.dumps(info))
    (tmp_path / "meta/tasks.jsonl").write_text('{"task_index": 0, "task": "stack"}\n')
    lines, stats, start = [], [], 0
    for number, length in enumerate((2, 3, *[1] * 9)):
        actions = [[10.0 * number + step, float(step)] for step in range(length)]
        columns = {
            "action": pa.array(actions, pa.list_(pa.float32(), 2)),
            "timestamp": pa.array([step / 10 for step in range(length)], pa.float32()),
            "frame_index": list(range(length)),
            "episode_index": [number] * length,
            "index": list(range(start, start + length)),
            "task_index": [0] * length,
        }
        pq.write_table(pa.table(columns), tmp_path / f"data/chunk-000/episode_{number:06d}.parquet")
        lines.append(json.dumps({"episode_index": number, "tasks": ["stack"], "length": length}))
        values = np.array(actions)
        entry = {kind: getattr(values, kind)(0).tolist() for kind in ("min", "max", "mean", "std")}
        stats.append(json.dumps({"episode_index": number, "stats": {"action": entry | {"count": [length]}}}))
        start += length
    (tmp_path / "meta/episodes.jsonl").write_text("\n".join(lines))
    (tmp_path / "meta/episodes_stats.jsonl").write_text("\n".join(stats))
    dataset = LeRobotDataset(tmp_path)
    whole = np.array([[0, 0], [1, 1], [10, 0], [11, 1], [12, 2], *([10 * number, 0] for number in range(2, 11))])
    np.testing.assert_array_equal(dataset.column("action"), whole)
    assert dataset.episode(1).task == "stack"
    np.testing.assert_array_equal(dataset.episode(1).columns["action"], whole[2:5])
    np.testing.assert_array_equal(dataset.episode(2).columns["action"], [[20, 0]])
    np.testing.assert_allclose(dataset.stats["action"]["mean"], whole.mean(0))
    np.testing.assert_allclose(dataset.stats["action"]["std"], whole.std(0))


def test_episodes_are_found_in_whatever_order_the_metadata_lists_them(tmp_path: Path) -> None:
    root = write(tmp_path / "x")
    (path,) = root.glob("meta/episodes/*/*.parquet")
    table = pq.read_table(path)
    pq.write_table(table.take([2, 0, 1]), path)
    dataset = LeRobotDataset(root)
    assert [record.length for record in dataset.episodes] == [5, 1, 7]
    np.testing.assert_array_equal(dataset.episode(2).columns["action"], EPISODES[2].columns["action"])


def test_what_is_no_data_set_is_told(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"meta/info\.json"):
        LeRobotDataset(tmp_path)
    root = write(tmp_path / "x")
    info = json.loads((root / "meta/info.json").read_text()) | {"codebase_version": "v1.6"}
    (root / "meta/info.json").write_text(json.dumps(info))
    with pytest.raises(DatasetError, match=r"v1\.6"):
        LeRobotDataset(root)


def test_recent_episodes_are_kept_within_their_bytes(tmp_path: Path) -> None:
    dataset = LeRobotDataset(write(tmp_path / "set"))
    file, columns = tmp_path / "set" / dataset.episodes[0].data_file, ("observation.state",)
    recent = RecentEpisodes(1 << 30)
    assert recent.read(file, columns, 0) is recent.read(file, columns, 0)
    assert recent.read(file, columns, 2).num_rows == 7
    assert len(recent) == 2
    small = RecentEpisodes(recent.read(file, columns, 2).nbytes)
    small.read(file, columns, 0)
    small.read(file, columns, 2)
    assert len(small) == 1
    assert 0 < small.num_bytes <= small.max_bytes
    assert small.read(file, columns, 0).num_rows == 5
