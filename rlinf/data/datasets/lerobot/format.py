"""Names, types and paths of the LeRobot format, shared by writer, reader and checker."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rlinf.errors import DatasetError
from rlinf.utils.optional import require

VERSION = "v3.0"
READABLE_VERSIONS = (VERSION, "v2.1", "v2.0")
INFO_PATH = "meta/info.json"
STATS_PATH = "meta/stats.json"
TASKS_PATH = "meta/tasks.parquet"
EPISODES_PATH = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
DATA_PATH = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO_PATH = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
CHUNK_FILES = 1000
"""Files in one folder."""

Columns = dict[str, npt.NDArray[Any]]
"""Arrays [T, ...] of an episode's frames, by feature."""


@dataclass(frozen=True, slots=True)
class LeRobotEpisode:
    """One episode.

    Attributes:
        columns: Arrays [T, ...] by feature, for example ``observation.state`` float32 [T, S],
            ``observation.images.main`` uint8 [T, H, W, 3], ``action`` float32 [T, A], ``next.reward`` float32 [T, 1].
        task: What was to be done, in words.
    """

    columns: Columns
    task: str

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


@dataclass(frozen=True, slots=True)
class Feature:
    """What one column holds.

    Attributes:
        dtype: A numpy type, ``image`` (PNG in the table) or ``video`` (frames of an mp4).
        shape: Of one frame.
        names: Of its dimensions, or None.
        info: Details of a video.
    """

    dtype: str
    shape: tuple[int, ...]
    names: Any = None
    info: dict[str, Any] | None = None

    @property
    def is_visual(self) -> bool:
        """Whether it is an image or a video."""
        return self.dtype in {"image", "video"}

    def to_json(self) -> dict[str, Any]:
        """Return the entry of ``info.json``."""
        entry: dict[str, Any] = {"dtype": self.dtype, "shape": list(self.shape), "names": self.names}
        return entry if self.info is None else entry | {"info": self.info}

    @staticmethod
    def from_json(entry: dict[str, Any]) -> Feature:
        """Return the feature that an entry of ``info.json`` describes."""
        return Feature(entry["dtype"], tuple(entry["shape"]), entry.get("names"), entry.get("info"))

    @property
    def arrow_type(self) -> Any:
        """Type of the column in Parquet; a video has none."""
        arrow = pyarrow()
        if self.dtype == "image":
            return arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
        scalar = arrow.string() if self.dtype == "string" else arrow.from_numpy_dtype(np.dtype(self.dtype))
        return scalar if self.shape == (1,) else arrow.list_(scalar, self.shape[0])

    @property
    def hub_type(self) -> dict[str, Any]:
        """Type of the column in the words of the package ``datasets``, which reads it from the table's metadata."""
        if self.dtype == "image":
            return {"_type": "Image"}
        value = {"dtype": self.dtype, "_type": "Value"}
        return value if self.shape == (1,) else {"feature": value, "length": self.shape[0], "_type": "Sequence"}


DEFAULT_FEATURES = {
    "timestamp": Feature("float32", (1,)),
    "frame_index": Feature("int64", (1,)),
    "episode_index": Feature("int64", (1,)),
    "index": Feature("int64", (1,)),
    "task_index": Feature("int64", (1,)),
}
"""Columns that every data set has."""


@dataclass(slots=True)
class Info:
    """``meta/info.json``."""

    fps: int
    features: dict[str, Feature]
    robot_type: str | None = None
    codebase_version: str = VERSION
    total_episodes: int = 0
    total_frames: int = 0
    total_tasks: int = 0
    chunks_size: int = CHUNK_FILES
    data_files_size_in_mb: int = 100
    video_files_size_in_mb: int = 200
    splits: dict[str, str] = field(default_factory=dict)
    data_path: str = DATA_PATH
    video_path: str | None = None
    rendering: dict[str, Any] | None = None
    """How a simulator rendered the images, by key of its section, next to its ``env_type``; not LeRobot's own."""

    def write(self, root: Path) -> None:
        """Write it into a data set."""
        record = asdict(self) | {"features": {name: feature.to_json() for name, feature in self.features.items()}}
        if self.rendering is None:
            del record["rendering"]
        write_json(root / INFO_PATH, record)

    @staticmethod
    def read(root: Path) -> Info:
        """Read a data set's.

        Raises:
            DatasetError: There is none, or of a version that is not known.
        """
        path = root / INFO_PATH
        try:
            record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            version = record["codebase_version"]
            features = {name: Feature.from_json(entry) for name, entry in record.pop("features").items()}
        except FileNotFoundError:
            raise DatasetError(
                f"'{root}' is no LeRobot data set: it has no {INFO_PATH}. Give another folder."
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DatasetError(f"'{path}' cannot be read: {error}.") from error
        if version not in READABLE_VERSIONS:
            raise DatasetError(
                f"'{path}' has codebase_version {version}; allowed: {', '.join(READABLE_VERSIONS)}. Convert it with "
                "LeRobot's scripts."
            )
        known = {name: record[name] for name in Info.__dataclass_fields__ if name in record}
        return Info(**known, features=features)


def write_json(path: Path, record: Any) -> None:
    """Write a JSON file, and its folder where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=4, ensure_ascii=False), encoding="utf-8")


def place(number: int) -> dict[str, int]:
    """Return chunk and file index of the ``number``-th file of a kind."""
    return {"chunk_index": number // CHUNK_FILES, "file_index": number % CHUNK_FILES}


def pyarrow(module: str = "") -> Any:
    """Import pyarrow, or one of its modules."""
    name = f"pyarrow.{module}" if module else "pyarrow"
    return require(name, needed_by="the LeRobot format")
