"""Checks a folder against the LeRobot format, v3.0, without the reader's code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rlinf.data.datasets.lerobot.format import DEFAULT_FEATURES, Feature, Info, pyarrow
from rlinf.data.datasets.lerobot.images import read_video
from rlinf.data.datasets.lerobot.stats import NAMES
from rlinf.errors import DatasetError

_INFO_KEYS = (
    "codebase_version",
    "robot_type",
    "total_episodes",
    "total_frames",
    "total_tasks",
    "chunks_size",
    "data_files_size_in_mb",
    "video_files_size_in_mb",
    "fps",
    "splits",
    "data_path",
    "video_path",
    "features",
)
_EPISODE_KEYS = (
    "episode_index",
    "tasks",
    "length",
    "data/chunk_index",
    "data/file_index",
    "dataset_from_index",
    "dataset_to_index",
    "meta/episodes/chunk_index",
    "meta/episodes/file_index",
)
_TIME_TOLERANCE_SECONDS = 1e-4
"""Of time stamps against the frame rate, as LeRobot has it."""


def check_dataset(root: Path) -> None:
    """Check every file of a data set against the format and against the others.

    Args:
        root: Its folder.

    Raises:
        DatasetError: One line for each problem.
    """
    problems = list(_problems(Path(root)))
    if problems:
        raise DatasetError(f"'{root}' does not follow the LeRobot format:\n" + "\n".join(f"  - {p}" for p in problems))


def _problems(root: Path) -> Iterator[str]:
    record = json.loads((root / "meta/info.json").read_text(encoding="utf-8"))
    yield from (f"meta/info.json: '{key}' is missing" for key in _INFO_KEYS if key not in record)
    info = Info.read(root)
    for name, feature in DEFAULT_FEATURES.items():
        if info.features.get(name) != feature:
            yield f"meta/info.json: feature '{name}' is {info.features.get(name)}, not {feature}"
    parquet = pyarrow("parquet")
    episodes = [
        row
        for path in sorted((root / "meta/episodes").glob("chunk-*/file-*.parquet"))
        for row in parquet.read_table(path).to_pylist()
    ]
    yield from _episode_problems(episodes, info)
    yield from _task_problems(root, episodes, info)
    yield from _data_problems(root, episodes, info)
    yield from _stats_problems(root, info)
    for name in (name for name, feature in info.features.items() if feature.dtype == "video"):
        yield from _video_problems(root, name, episodes, info)


def _episode_problems(episodes: list[dict[str, Any]], info: Info) -> Iterator[str]:
    if len(episodes) != info.total_episodes:
        yield f"meta/episodes: {len(episodes)} rows, info.json says {info.total_episodes}"
    end = 0
    for number, row in enumerate(episodes):
        yield from (f"meta/episodes: '{key}' is missing" for key in _EPISODE_KEYS if key not in row)
        if row["episode_index"] != number or row["dataset_from_index"] != end:
            yield f"meta/episodes: row {number} does not continue the one before: {row['episode_index']}, {end}"
        end = row["dataset_to_index"]
        if end - row["dataset_from_index"] != row["length"] or row["length"] < 1:
            yield f"meta/episodes: episode {number} has the length {row['length']}, not its range's"
        for name, feature in info.features.items():
            missing = [kind for kind in NAMES if feature.dtype != "string" and f"stats/{name}/{kind}" not in row]
            yield from (f"meta/episodes: episode {number} lacks stats/{name}/{kind}" for kind in missing)
    if end != info.total_frames:
        yield f"meta/episodes: they end at frame {end}, info.json says {info.total_frames}"
    if info.splits != {"train": f"0:{info.total_episodes}"}:
        yield f"meta/info.json: splits {info.splits} do not cover {info.total_episodes} episodes"


def _task_problems(root: Path, episodes: list[dict[str, Any]], info: Info) -> Iterator[str]:
    table = pyarrow("parquet").read_table(root / "meta/tasks.parquet")
    index = json.loads(table.schema.metadata[b"pandas"])["index_columns"]
    if table["task_index"].to_pylist() != list(range(info.total_tasks)):
        yield f"meta/tasks.parquet: task_index is not 0 .. {info.total_tasks - 1}"
    words = set(table[index[0]].to_pylist())
    yield from (f"episode {row['episode_index']}: unknown task" for row in episodes if not set(row["tasks"]) <= words)


def _data_problems(root: Path, episodes: list[dict[str, Any]], info: Info) -> Iterator[str]:
    stored = {name: feature for name, feature in info.features.items() if feature.dtype != "video"}
    files: dict[str, list[dict[str, Any]]] = {}
    for row in episodes:
        places = {key: row[f"data/{key}"] for key in ("chunk_index", "file_index")}
        files.setdefault(info.data_path.format(**places), []).append(row)
    for file, rows in files.items():
        table = pyarrow("parquet").read_table(root / file)
        if set(table.column_names) != set(stored):
            yield f"{file}: columns {table.column_names}, info.json says {sorted(stored)}"
            continue
        for name, feature in stored.items():
            if table.schema.field(name).type != _arrow_type(feature):
                yield f"{file}: '{name}' is {table.schema.field(name).type}, not {_arrow_type(feature)}"
        expected = np.concatenate([np.arange(row["length"]) for row in rows])
        found = {name: table[name].to_numpy() for name in DEFAULT_FEATURES}
        if not np.array_equal(found["frame_index"], expected):
            yield f"{file}: frame_index does not count each episode's frames from 0"
        if not np.array_equal(found["index"], rows[0]["dataset_from_index"] + np.arange(len(expected))):
            yield f"{file}: index is not contiguous"
        numbers = np.repeat([row["episode_index"] for row in rows], [row["length"] for row in rows])
        if not np.array_equal(found["episode_index"], numbers):
            yield f"{file}: episode_index is not that of meta/episodes"
        if np.abs(found["timestamp"] - expected / info.fps).max() > _TIME_TOLERANCE_SECONDS:
            yield f"{file}: timestamp is not frame_index / fps"
        if found["task_index"].max() >= info.total_tasks:
            yield f"{file}: task_index {found['task_index'].max()} is in no table"


def _arrow_type(feature: Feature) -> Any:
    arrow = pyarrow()
    if feature.dtype == "image":
        return arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
    types = {"float32": arrow.float32(), "float64": arrow.float64(), "int64": arrow.int64(), "bool": arrow.bool_()}
    scalar = types.get(feature.dtype) or arrow.from_numpy_dtype(np.dtype(feature.dtype))
    return scalar if feature.shape == (1,) else arrow.list_(scalar, feature.shape[0])


def _stats_problems(root: Path, info: Info) -> Iterator[str]:
    stats = json.loads((root / "meta/stats.json").read_text(encoding="utf-8"))
    for name, feature in info.features.items():
        if feature.dtype == "string":
            continue
        entry = stats.get(name, {})
        shape = (3, 1, 1) if feature.is_visual else feature.shape
        for kind in NAMES:
            found = np.shape(entry.get(kind))
            if kind not in entry or found != ((1,) if kind == "count" else shape):
                yield f"meta/stats.json: {name}/{kind} has the shape {found}"
        if feature.is_visual and np.max(entry["max"]) > 1:
            yield f"meta/stats.json: {name} is not in [0, 1]"


def _video_problems(root: Path, name: str, episodes: list[dict[str, Any]], info: Info) -> Iterator[str]:
    for row in episodes:
        where = {key: row[f"videos/{name}/{key}"] for key in ("chunk_index", "file_index")}
        path = root / str(info.video_path).format(video_key=name, **where)
        start, end = (row[f"videos/{name}/{key}"] for key in ("from_timestamp", "to_timestamp"))
        if abs((end - start) * info.fps - row["length"]) > _TIME_TOLERANCE_SECONDS * info.fps:
            yield f"episode {row['episode_index']}: its range of {path.name} is not its length"
        last = end - 1 / info.fps
        try:
            shape = read_video(path, start_seconds=last, count=1, fps=info.fps).shape[1:]
        except DatasetError as error:
            yield str(error)
            continue
        if shape != info.features[name].shape:
            yield f"{path.name}: frames are {shape}, not {info.features[name].shape}"
