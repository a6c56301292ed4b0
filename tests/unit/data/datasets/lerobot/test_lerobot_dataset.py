"""What is written follows the format, and is read back as it was, in both versions."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlinf.data.datasets.lerobot import LeRobotDataset, LeRobotEpisode, LeRobotWriter, check_dataset, merge_datasets
from rlinf.data.datasets.lerobot.format import Feature, place
from rlinf.data.datasets.lerobot.stats import episode_stats
from rlinf.data.datasets.lerobot.writer import WriterOptions
from rlinf.errors import DatasetError

CAMERA = "observation.images.main"


def make_episode(length, seed=0, task="reach", images=True):
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


def write(root, episodes=EPISODES, **options):
    with LeRobotWriter(root, WriterOptions(fps=10, robot_type="toy", **options)) as writer:
        for episode in episodes:
            writer.add(episode)
    return root


@pytest.fixture(scope="module", params=["image", "video"])
def dataset(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("lerobot") / request.param
    return LeRobotDataset(write(root, use_videos=request.param == "video"))


def assert_like(found, expected, video):
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.astype(float), expected.astype(float), atol=8 if video else 0)


def test_what_is_written_passes_the_check_and_comes_back(dataset):
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


def test_single_frames_are_those_of_their_episodes(dataset):
    indices = np.array([12, 0, 5, 4])
    found = dataset.frames(indices, ["observation.state", CAMERA, "frame_index"])
    for name in ("observation.state", CAMERA):
        whole = np.concatenate([episode.columns[name] for episode in EPISODES])
        assert_like(found[name], whole[indices], dataset.features[name].dtype == "video")
    assert found["frame_index"].reshape(-1).tolist() == [6, 0, 0, 4]
    assert dataset.tasks_of(indices) == ["reach", "reach", "push", "reach"]


def test_statistics_are_those_of_all_frames(dataset):
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


def test_files_of_limited_size_follow_one_another(tmp_path):
    root = write(tmp_path / "small", data_file_mb=0, video_file_mb=0, use_videos=True)
    check_dataset(root)
    assert len(list(root.glob("data/chunk-000/*.parquet"))) == 3
    assert len(list(root.glob(f"videos/{CAMERA}/chunk-000/*.mp4"))) == 3
    np.testing.assert_array_equal(
        LeRobotDataset(root).column("action"), np.concatenate([episode.columns["action"] for episode in EPISODES])
    )


def test_data_sets_are_merged_in_order(tmp_path):
    parts = [write(tmp_path / "a", EPISODES[:1]), write(tmp_path / "b", EPISODES[1:])]
    merge_datasets(parts, tmp_path / "merged", WriterOptions(fps=10, robot_type="toy"))
    check_dataset(tmp_path / "merged")
    whole = write(tmp_path / "whole")
    assert (tmp_path / "merged/meta/info.json").read_text() == (whole / "meta/info.json").read_text()
    merged, expected = LeRobotDataset(tmp_path / "merged"), LeRobotDataset(whole)
    for name in expected.features:
        for kind, value in expected.stats[name].items():
            np.testing.assert_allclose(merged.stats[name][kind], value)


def test_nothing_is_left_of_a_data_set_that_failed(tmp_path):
    with pytest.raises(DatasetError, match="other features"):
        write(tmp_path / "x", [EPISODES[0], make_episode(3, images=False)])
    with pytest.raises(DatasetError, match="No episode"):
        write(tmp_path / "x", [])
    assert list(tmp_path.iterdir()) == []
    write(tmp_path / "x")
    with pytest.raises(DatasetError, match="exists"):
        write(tmp_path / "x")


def test_the_check_finds_what_does_not_fit(tmp_path):
    root = write(tmp_path / "x")
    info = json.loads((root / "meta/info.json").read_text())
    del info["features"]["task_index"]
    info |= {"total_frames": 14, "fps": 20}
    (root / "meta/info.json").write_text(json.dumps(info))
    with pytest.raises(DatasetError) as caught:
        check_dataset(root)
    for problem in ("'task_index' is None", "info.json says 14", "columns"):
        assert problem in str(caught.value)


def test_version_2_1_is_read(tmp_path):
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


def test_episodes_are_found_in_whatever_order_the_metadata_lists_them(tmp_path):
    root = write(tmp_path / "x")
    (path,) = root.glob("meta/episodes/*/*.parquet")
    table = pq.read_table(path)
    pq.write_table(table.take([2, 0, 1]), path)
    dataset = LeRobotDataset(root)
    assert [record.length for record in dataset.episodes] == [5, 1, 7]
    np.testing.assert_array_equal(dataset.episode(2).columns["action"], EPISODES[2].columns["action"])


def test_tasks_are_numbered_without_gaps(tmp_path):
    dataset = LeRobotDataset(write(tmp_path / "x", [make_episode(2), make_episode(2), make_episode(2, task="push")]))
    assert dataset.tasks_of(np.array([0, 2, 4])) == ["reach", "reach", "push"]
    assert dataset.column("task_index").reshape(-1).tolist() == [0, 0, 0, 0, 1, 1]


def test_statistics_of_images_are_from_the_whole_episode():
    shades = np.broadcast_to(np.arange(250, dtype=np.uint8)[:, None, None, None], (250, 2, 2, 3))
    stats = episode_stats({CAMERA: shades}, {CAMERA: Feature("image", (2, 2, 3))})[CAMERA]
    assert stats["count"].tolist() == [100]
    assert (float(stats["min"].max()), float(stats["max"].min())) == (0.0, 249 / 255)
    np.testing.assert_allclose(stats["mean"], 124.5 / 255, atol=0.01)


def test_a_folder_has_a_thousand_files():
    assert place(999) == {"chunk_index": 0, "file_index": 999}
    assert place(2001) == {"chunk_index": 2, "file_index": 1}


def test_what_is_no_data_set_is_told(tmp_path):
    with pytest.raises(DatasetError, match=r"meta/info\.json"):
        LeRobotDataset(tmp_path)
    root = write(tmp_path / "x")
    info = json.loads((root / "meta/info.json").read_text()) | {"codebase_version": "v1.6"}
    (root / "meta/info.json").write_text(json.dumps(info))
    with pytest.raises(DatasetError, match=r"v1\.6"):
        LeRobotDataset(root)
