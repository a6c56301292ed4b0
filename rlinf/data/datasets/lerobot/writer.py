"""Writes episodes as a LeRobot data set (v3.0)."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from rlinf.data.datasets.lerobot.dataset import LeRobotDataset
from rlinf.data.datasets.lerobot.format import (
    DATA_PATH,
    DEFAULT_FEATURES,
    EPISODES_PATH,
    STATS_PATH,
    TASKS_PATH,
    VIDEO_PATH,
    Columns,
    Feature,
    Info,
    LeRobotEpisode,
    place,
    pyarrow,
    write_json,
)
from rlinf.data.datasets.lerobot.images import VideoFile, encode_png
from rlinf.data.datasets.lerobot.stats import Stats, episode_stats, join_stats
from rlinf.errors import DatasetError
from rlinf.utils.files import commit_folder


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """How a data set is written.

    Attributes:
        fps: Frames per second.
        robot_type: Kind of robot, for readers.
        use_videos: Store camera images as videos rather than as single images.
        data_file_mb: Size, in MB, at which the next data file is begun.
        video_file_mb: The same for videos.
        rendering: See ``Info``.
    """

    fps: int
    robot_type: str | None = None
    use_videos: bool = False
    data_file_mb: int = 100
    video_file_mb: int = 200
    rendering: dict[str, Any] | None = None


class LeRobotWriter:
    """A data set that grows by episodes and appears under its name when it is closed; a context manager.

    Args:
        root: Its folder; must not exist.
        options: How to write.

    Raises:
        DatasetError: ``root`` exists.
    """

    def __init__(self, root: Path, options: WriterOptions) -> None:
        if root.exists():
            raise DatasetError(f"'{root}' exists; move it away, or choose another folder for the data set.")
        pyarrow()
        self.root = root.absolute()
        self.options = options
        self._folder = self.root.with_name(f".{root.name}.{uuid.uuid4().hex[:8]}.tmp")
        self._folder.mkdir(parents=True)
        self._features: dict[str, Feature] = {}
        self._tasks: dict[str, int] = {}
        self._episodes: list[dict[str, Any]] = []
        self._stats: list[dict[str, Stats]] = []
        self._num_frames = 0
        self._table: _Table | None = None
        self._num_tables = 0
        self._videos: dict[str, VideoFile] = {}
        self._num_videos: dict[str, int] = {}

    def __enter__(self) -> LeRobotWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    @property
    def num_episodes(self) -> int:
        """Episodes so far."""
        return len(self._episodes)

    def add(self, episode: LeRobotEpisode) -> None:
        """Append an episode; the first decides about the features.

        Raises:
            DatasetError: It is empty, its columns differ in length, or it has other features than the first.
        """
        if not self._features:
            self._features = {n: self._infer(n, values) for n, values in sorted(episode.columns.items())}
        self._require_fitting(episode)
        count, number = len(episode), len(self._episodes)
        task_index = self._tasks.setdefault(episode.task, len(self._tasks))
        steps = np.arange(count)
        columns = episode.columns | {
            "timestamp": (steps / self.options.fps).astype(np.float32)[:, None],
            "frame_index": steps[:, None],
            "episode_index": np.full((count, 1), number),
            "index": self._num_frames + steps[:, None],
            "task_index": np.full((count, 1), task_index),
        }
        features = self._features | DEFAULT_FEATURES
        stats = episode_stats(columns, features)
        record: dict[str, Any] = {"episode_index": number, "tasks": [episode.task], "length": count}
        record |= self._write_frames(columns, features)
        record |= {"dataset_from_index": self._num_frames, "dataset_to_index": self._num_frames + count}
        for name in (name for name, feature in self._features.items() if feature.dtype == "video"):
            record |= self._write_video(name, columns)
        record |= {f"stats/{name}/{kind}": v.tolist() for name, entry in stats.items() for kind, v in entry.items()}
        self._episodes.append(record | {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0})
        self._stats.append(stats)
        self._num_frames += count

    def close(self) -> None:
        """Write the metadata and publish the data set.

        Raises:
            DatasetError: It has no episode.
        """
        if not self._episodes:
            self.abort()
            raise DatasetError(f"No episode for '{self.root}': a data set has one at least.")
        self._close_files()
        features = self._features | DEFAULT_FEATURES
        Info(
            fps=self.options.fps,
            features=features,
            robot_type=self.options.robot_type,
            total_episodes=len(self._episodes),
            total_frames=self._num_frames,
            total_tasks=len(self._tasks),
            data_files_size_in_mb=self.options.data_file_mb,
            video_files_size_in_mb=self.options.video_file_mb,
            splits={"train": f"0:{len(self._episodes)}"},
            video_path=VIDEO_PATH if self._num_videos else None,
            rendering=self.options.rendering,
        ).write(self._folder)
        total = join_stats(self._stats)
        write_json(
            self._folder / STATS_PATH,
            {name: {kind: v.tolist() for kind, v in entry.items()} for name, entry in total.items()},
        )
        path = self._folder / EPISODES_PATH.format(**place(0))
        path.parent.mkdir(parents=True)
        pyarrow("parquet").write_table(pyarrow().Table.from_pylist(self._episodes), path)
        _write_tasks(self._folder / TASKS_PATH, list(self._tasks))
        commit_folder(self._folder, self.root)

    def abort(self) -> None:
        """Throw away what was written."""
        self._close_files()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _close_files(self) -> None:
        for file in (self._table, *self._videos.values()):
            if file is not None:
                file.close()
        self._table, self._videos = None, {}

    def _infer(self, name: str, values: Any) -> Feature:
        if "/" in name or name in DEFAULT_FEATURES:
            raise DatasetError(f"'{name}' cannot be a feature: it has a slash, or is written by itself. Rename it.")
        shape = values.shape[1:]
        if values.dtype == np.uint8 and len(shape) == 3:
            height, width, channels = shape
            if channels != 3:
                raise DatasetError(f"'{name}': images have 3 channels, last; received the shape {shape}.")
            names = ["height", "width", "channels"]
            if not self.options.use_videos:
                return Feature("image", shape, names)
            details = {"height": height, "width": width, "codec": "h264", "pix_fmt": "yuv420p", "is_depth_map": False}
            info = {
                f"video.{key}": value for key, value in (details | {"fps": self.options.fps, "channels": 3}).items()
            }
            return Feature("video", shape, names, info | {"has_audio": False})
        if len(shape) != 1:
            raise DatasetError(
                f"'{name}': a column is [T, N] or uint8 [T, H, W, 3]; received {values.shape}. Reshape it."
            )
        return Feature(str(values.dtype), shape)

    def _require_fitting(self, episode: LeRobotEpisode) -> None:
        found = {name: self._infer(name, values) for name, values in sorted(episode.columns.items())}
        if found != self._features:
            raise DatasetError(
                f"episode {len(self._episodes)} has other features than the first: {found}, not {self._features}."
            )
        lengths = {name: len(values) for name, values in episode.columns.items()}
        if len(set(lengths.values())) != 1 or not len(episode):
            raise DatasetError(f"columns of an episode have one length, at least 1; received {lengths}.")

    def _write_frames(self, columns: Columns, features: dict[str, Feature]) -> dict[str, int]:
        if self._table is not None and self._table.path.stat().st_size >= self.options.data_file_mb * 1e6:
            self._table.close()
            self._table = None
        if self._table is None:
            self._table = _Table(self._folder / DATA_PATH.format(**place(self._num_tables)), features)
            self._num_tables += 1
        self._table.write(columns)
        return {f"data/{key}": value for key, value in place(self._num_tables - 1).items()}

    def _write_video(self, name: str, columns: Columns) -> dict[str, Any]:
        images = columns[name]
        file = self._videos.get(name)
        if file is not None and file.size_bytes >= self.options.video_file_mb * 1e6:
            file.close()
            file = None
        if file is None:
            number = self._num_videos.get(name, 0)
            path = self._folder / VIDEO_PATH.format(video_key=name, **place(number))
            file = VideoFile(path, fps=self.options.fps, size=images.shape[1:3])
            self._videos[name], self._num_videos[name] = file, number + 1
        start = file.num_frames
        file.append(images)
        where = place(self._num_videos[name] - 1)
        times = {"from_timestamp": start / self.options.fps, "to_timestamp": file.num_frames / self.options.fps}
        return {f"videos/{name}/{key}": value for key, value in (where | times).items()}


class _Table:
    """One data file; each episode is a row group of its own, so that it can be read alone."""

    def __init__(self, path: Path, features: dict[str, Feature]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.features = {name: feature for name, feature in features.items() if feature.dtype != "video"}
        arrow = pyarrow()
        hub = {"info": {"features": {name: feature.hub_type for name, feature in self.features.items()}}}
        fields = [arrow.field(name, feature.arrow_type) for name, feature in self.features.items()]
        self.schema = arrow.schema(fields, metadata={"huggingface": json.dumps(hub)})
        self._writer = pyarrow("parquet").ParquetWriter(path, self.schema)

    def write(self, columns: Columns) -> None:
        arrays = [_to_arrow(columns[name], feature) for name, feature in self.features.items()]
        self._writer.write_table(pyarrow().Table.from_arrays(arrays, schema=self.schema))

    def close(self) -> None:
        self._writer.close()


def _to_arrow(values: Any, feature: Feature) -> Any:
    arrow = pyarrow()
    if feature.dtype == "image":
        return arrow.array([{"bytes": encode_png(row), "path": None} for row in values], feature.arrow_type)
    flat = arrow.array(np.ascontiguousarray(values).reshape(-1), arrow.from_numpy_dtype(values.dtype))
    return flat if feature.shape == (1,) else arrow.FixedSizeListArray.from_arrays(flat, feature.shape[0])


def _write_tasks(path: Path, tasks: list[str]) -> None:
    """Write the table as pandas would, whose index, the task itself, is what LeRobot looks up."""
    arrow = pyarrow()
    column = {"metadata": None, "field_name": "task_index", "name": "task_index"}
    index = {"metadata": None, "field_name": "__index_level_0__", "name": None}
    pandas = {
        "index_columns": ["__index_level_0__"],
        "column_indexes": [],
        "columns": [
            column | {"pandas_type": "int64", "numpy_type": "int64"},
            index | {"pandas_type": "unicode", "numpy_type": "object"},
        ],
        "pandas_version": "2.0.0",
    }
    table = arrow.table({"task_index": list(range(len(tasks))), "__index_level_0__": tasks})
    pyarrow("parquet").write_table(table.replace_schema_metadata({"pandas": json.dumps(pandas)}), path)


def merge_datasets(parts: Sequence[Path], root: Path, options: WriterOptions) -> None:
    """Write the episodes of several data sets, one after the other, as one.

    Args:
        parts: Folders of data sets with the same features.
        root: The new data set's folder; must not exist.
        options: How to write it.

    Raises:
        DatasetError: Their features differ, or ``root`` exists.
    """
    with LeRobotWriter(root, options) as writer:
        for part in parts:
            dataset = LeRobotDataset(part)
            for number in range(dataset.num_episodes):
                writer.add(dataset.episode(number))
