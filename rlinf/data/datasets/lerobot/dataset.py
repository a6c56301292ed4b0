"""Reads LeRobot data sets, v3.0, v2.1 and v2.0: episodes, frames and chunks of actions."""

from __future__ import annotations

import functools
import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlinf.data.datasets.lerobot.format import (
    DEFAULT_FEATURES,
    STATS_PATH,
    TASKS_PATH,
    VERSION,
    Columns,
    Feature,
    Info,
    LeRobotEpisode,
    pyarrow,
)
from rlinf.data.datasets.lerobot.images import Images, decode_image, read_video
from rlinf.data.datasets.lerobot.stats import Stats, join_stats
from rlinf.errors import DatasetError

_CAMERAS = "observation.images."
_COLUMNS = {"states": "observation.state", "actions": "action", "rewards": "next.reward"}
"""Columns, by the names that learners give what they hold; images are ``observation.images.<name>``."""
_RECENT_BYTES = 512 << 20
"""Of episodes that a data set keeps in memory."""


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """Where an episode is.

    Attributes:
        length: Frames.
        start: Number of its first frame in the whole data set.
        data_file: Path below the root.
        videos: For each video feature the path below the root and the second at which the episode begins.
        tasks: In words.
    """

    length: int
    start: int
    data_file: str
    videos: dict[str, tuple[str, float]] = field(default_factory=dict)
    tasks: tuple[str, ...] = ()

    @property
    def end(self) -> int:
        """Number behind its last frame."""
        return self.start + self.length


class LeRobotDataset:
    """A data set on the disk.

    Args:
        root: Its folder.
        columns: What the data set calls its columns where that is not what LeRobot does, by the names that learners
            give what they hold: ``main_images``, ``states``, ``actions``, ``rewards``.

    Raises:
        DatasetError: It is none, or damaged, or lacks one of ``columns``.

    Attributes:
        info: ``meta/info.json``, with LeRobot's names of columns.
        episodes: Where each episode is.
        tasks: In words, by ``task_index``.
        stats: Over all frames, by feature, to normalise with.
    """

    def __init__(self, root: Path, columns: Mapping[str, str] | None = None) -> None:
        self.root = Path(root)
        recorded = Info.read(self.root)
        try:
            read = _read_v3 if recorded.codebase_version == VERSION else _read_v2
            self.episodes, self.tasks, stats = read(self.root, recorded)
        except (OSError, ValueError, KeyError) as error:
            raise DatasetError(f"the metadata of '{self.root}' cannot be read: {error}.") from error
        self._recorded_names = {_column_of(name): theirs for name, theirs in (columns or {}).items()}
        ours = self._names_of(recorded.features)
        self.info = replace(recorded, features={ours[name]: kind for name, kind in recorded.features.items()})
        self.stats = {ours[name]: entry for name, entry in stats.items() if name in ours}
        self._loaded: Columns = {}
        self._recent = RecentEpisodes(_RECENT_BYTES)

    @property
    def features(self) -> dict[str, Feature]:
        """Columns, by name."""
        return self.info.features

    @property
    def num_episodes(self) -> int:
        """Episodes."""
        return len(self.episodes)

    @property
    def num_frames(self) -> int:
        """Frames of all episodes."""
        return self.info.total_frames

    def episode(self, number: int, features: Sequence[str] | None = None) -> LeRobotEpisode:
        """Read an episode.

        Args:
            number: Its index.
            features: Which columns; None takes all but those that every data set has.
        """
        record = self.episodes[number]
        wanted = [n for n in self.features if n not in DEFAULT_FEATURES] if features is None else list(features)
        tables = [name for name in wanted if self.features[name].dtype != "video"]
        names = (*map(self._recorded, tables), "task_index")
        table = self._recent.read(self.root / record.data_file, names, number)
        if table.num_rows != record.length:
            raise DatasetError(
                f"'{self.root / record.data_file}' has {table.num_rows} frames of episode {number}, not "
                f"{record.length}."
            )
        columns = {name: _to_numpy(table[self._recorded(name)], self.features[name]) for name in tables}
        for name in (name for name in wanted if name not in columns):
            path, start = record.videos[self._recorded(name)]
            columns[name] = read_video(
                self.root / path, start_seconds=start, count=record.length, fps=float(self.info.fps)
            )
        task = self.tasks[int(table["task_index"][0].as_py())]
        return LeRobotEpisode({name: columns[name] for name in wanted}, task)

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a column of all frames [num_frames, ...], read once and kept; for what is no image."""
        if name not in self._loaded:
            feature = self.features[name]
            if feature.is_visual:
                raise DatasetError(f"'{name}' holds images, which are read by frame: use frames or episode.")
            files = list(dict.fromkeys(record.data_file for record in self.episodes))
            theirs = self._recorded(name)
            tables = [pyarrow("parquet").read_table(self.root / file, columns=[theirs]) for file in files]
            self._loaded[name] = np.concatenate([_to_numpy(table[theirs], feature) for table in tables])
        return self._loaded[name]

    def frames(self, indices: npt.NDArray[np.int64], features: Sequence[str]) -> Columns:
        """Read single frames.

        Args:
            indices: int64 [N]; numbers in the whole data set.
            features: Which columns; images are decoded, uint8 [N, H, W, 3].
        """
        return {
            name: self._images(name, indices) if self.features[name].is_visual else self.column(name)[indices]
            for name in features
        }

    def tasks_of(self, indices: npt.NDArray[np.int64]) -> list[str]:
        """Return what was to be done in some frames."""
        return [self.tasks[int(number)] for number in self.column("task_index")[indices].reshape(-1)]

    def require_cameras(self, columns: Iterable[str]) -> None:
        """Check that there are some cameras.

        Args:
            columns: Their names, as ``camera_columns`` makes them.

        Raises:
            DatasetError: One is missing; the message names those that are there.
        """
        missing = [name for name in columns if name not in self.features]
        if missing:
            cameras = ", ".join(name for name in self.features if name.startswith(_CAMERAS)) or "none"
            raise DatasetError(
                f"data.path: '{self.root}' has no {', '.join(missing)}; its cameras are {cameras}. Correct "
                "actor.model.image_keys, name the data set's columns in data.columns, or choose another data set."
            )

    def _recorded(self, name: str) -> str:
        return self._recorded_names.get(name, name)

    def _names_of(self, recorded: Iterable[str]) -> dict[str, str]:
        """Return what columns are called here, by what the data set calls them."""
        names = {name: name for name in recorded} | {theirs: name for name, theirs in self._recorded_names.items()}
        unknown = sorted(set(names) - set(recorded))
        if unknown:
            raise DatasetError(
                f"data.columns: '{self.root}' has no {', '.join(unknown)}; its columns are "
                f"{', '.join(name for name in recorded if name not in DEFAULT_FEATURES)}."
            )
        twice = sorted({name for name in names.values() if list(names.values()).count(name) > 1})
        if twice:
            raise DatasetError(
                f"data.columns: '{self.root}' has a column {', '.join(twice)} of its own. Leave it out of data.columns."
            )
        return names

    @functools.cached_property
    def _ends(self) -> npt.NDArray[np.int64]:
        return np.array([record.end for record in self.episodes], np.int64)

    def _episodes_of(self, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.searchsorted(self._ends, indices, side="right")

    def _images(self, name: str, indices: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        episodes = self._episodes_of(indices)
        rows: list[npt.NDArray[np.uint8]] = [np.zeros(0, np.uint8)] * len(indices)
        for number in np.unique(episodes).tolist():
            record = self.episodes[number]
            places = np.flatnonzero(episodes == number)
            offsets = indices[places] - record.start
            if self.features[name].dtype == "image":
                theirs = self._recorded(name)
                column = self._recent.read(self.root / record.data_file, (theirs,), number)[theirs]
                images = [decode_image(column[int(offset)].as_py()["bytes"]) for offset in offsets]
            else:
                path, start = record.videos[self._recorded(name)]
                images = [self._video_frame(self.root / path, start, int(offset)) for offset in offsets]
            for at, image in zip(places.tolist(), images, strict=True):
                rows[at] = image
        return np.stack(rows)

    def _video_frame(self, path: Path, start: float, offset: int) -> npt.NDArray[np.uint8]:
        fps = float(self.info.fps)
        images: Images = read_video(path, start_seconds=start + offset / fps, count=1, fps=fps)
        return images.squeeze(0)


def camera_columns(image_keys: Sequence[str]) -> dict[str, str]:
    """Return the keys of observations that hold images by the names of the columns that record them."""
    return {f"{_CAMERAS}{key.removesuffix('_images')}": key for key in image_keys}


def _column_of(name: str) -> str:
    return _COLUMNS.get(name) or f"{_CAMERAS}{name.removesuffix('_images')}"


class RecentEpisodes:
    """Keeps what was read last, as frames of an episode are read again and again.

    Args:
        max_bytes: Of all that is kept; images stay as they are in the files.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes, self.num_bytes = max_bytes, 0
        self._tables: OrderedDict[tuple[Path, tuple[str, ...], int], Any] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tables)

    def read(self, path: Path, columns: tuple[str, ...], episode: int) -> Any:
        """Return some columns of an episode of a data file."""
        key = (path, columns, episode)
        if key in self._tables:
            self._tables.move_to_end(key)
            return self._tables[key]
        filters = [("episode_index", "=", episode)]
        table = pyarrow("parquet").read_table(path, columns=list(columns), filters=filters)
        self._tables[key] = table
        self.num_bytes += table.nbytes
        while self.num_bytes > self.max_bytes and len(self._tables) > 1:
            self.num_bytes -= self._tables.popitem(last=False)[1].nbytes
        return table


def _to_numpy(column: Any, feature: Feature) -> npt.NDArray[Any]:
    if feature.dtype == "image":
        return np.stack([decode_image(entry["bytes"]) for entry in column.to_pylist()])
    if feature.dtype == "string":
        return np.array(column.to_pylist(), dtype=object)
    flat = column.combine_chunks()
    for _ in range(0 if feature.shape == (1,) else len(feature.shape)):
        flat = flat.flatten()
    values: npt.NDArray[Any] = np.asarray(flat.to_numpy(zero_copy_only=False), dtype=feature.dtype)
    return values.reshape(-1, *feature.shape)


_Metadata = tuple[list[EpisodeRecord], list[str], dict[str, Stats]]


def _read_v3(root: Path, info: Info) -> _Metadata:
    parquet = pyarrow("parquet")
    episodes: list[EpisodeRecord] = []
    for path in sorted((root / "meta" / "episodes").glob("*/*.parquet")):
        schema = parquet.read_schema(path).names
        for row in parquet.read_table(path, columns=[n for n in schema if not n.startswith("stats/")]).to_pylist():
            data = {key: row[f"data/{key}"] for key in ("chunk_index", "file_index")}
            videos = {name: _video_place(row, name, info) for name, f in info.features.items() if f.dtype == "video"}
            start = row["dataset_from_index"]
            file = info.data_path.format(**data)
            episodes.append(EpisodeRecord(row["length"], start, file, videos, tuple(row["tasks"])))
    table = parquet.read_table(root / TASKS_PATH)
    words = next(name for name in table.column_names if name != "task_index")
    by_index = dict(zip(table["task_index"].to_pylist(), table[words].to_pylist(), strict=True))
    return (
        sorted(episodes, key=lambda record: record.start),
        [by_index[index] for index in range(len(by_index))],
        _joined_stats(root),
    )


def _video_place(row: dict[str, Any], name: str, info: Info) -> tuple[str, float]:
    assert info.video_path is not None
    where = {key: row[f"videos/{name}/{key}"] for key in ("chunk_index", "file_index")}
    return info.video_path.format(video_key=name, **where), float(row[f"videos/{name}/from_timestamp"])


def _read_v2(root: Path, info: Info) -> _Metadata:
    episodes: list[EpisodeRecord] = []
    start = 0
    for row in sorted(_read_lines(root / "meta" / "episodes.jsonl"), key=lambda row: int(row["episode_index"])):
        number = row["episode_index"]
        where = {"episode_chunk": number // info.chunks_size, "episode_index": number}
        videos = {
            name: (str(info.video_path).format(video_key=name, **where), 0.0)
            for name, feature in info.features.items()
            if feature.dtype == "video"
        }
        file = info.data_path.format(**where)
        episodes.append(EpisodeRecord(row["length"], start, file, videos, tuple(row["tasks"])))
        start += row["length"]
    by_index = {row["task_index"]: row["task"] for row in _read_lines(root / "meta" / "tasks.jsonl")}
    return episodes, [by_index[index] for index in range(len(by_index))], _read_v2_stats(root)


def _read_v2_stats(root: Path) -> dict[str, Stats]:
    """Read those of v2.1, which has them by episode, or of v2.0, which has those of all frames."""
    by_episode = root / "meta" / "episodes_stats.jsonl"
    if not by_episode.is_file():
        return _joined_stats(root)
    rows = _read_lines(by_episode)
    return join_stats([{name: _arrays(entry) for name, entry in row["stats"].items()} for row in rows])


def _joined_stats(root: Path) -> dict[str, Stats]:
    stats = json.loads((root / STATS_PATH).read_text(encoding="utf-8"))
    return {name: _arrays(entry) for name, entry in stats.items()}


def _read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _arrays(entry: dict[str, Any]) -> Stats:
    return {kind: np.asarray(value, np.float64) for kind, value in entry.items()}
