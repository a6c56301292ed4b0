"""Labels of frames next to a data set: how much better than usual what is done in them turned out.

``meta/advantages_<tag>.parquet`` has a row for each frame: ``episode_index`` and ``frame_index`` within it,
``advantage`` (bool, whether it is positive) and ``advantage_continuous`` (float). Nothing else of the set changes.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rlinf.data.datasets.lerobot.dataset import LeRobotDataset
from rlinf.data.datasets.lerobot.format import pyarrow
from rlinf.errors import DatasetError
from rlinf.utils.files import write_atomic

_COLUMNS = ("episode_index", "frame_index", "advantage", "advantage_continuous")


def labels_path(root: Path, tag: str) -> Path:
    """Return where the labels of a name are."""
    return root / "meta" / f"advantages_{tag}.parquet"


def write_advantages(
    root: Path,
    tag: str,
    episode_index: npt.NDArray[np.int64],
    frame_index: npt.NDArray[np.int64],
    advantage: npt.NDArray[np.bool_],
    score: npt.NDArray[np.float64],
) -> None:
    """Write labels; older ones of the same name are replaced once the new ones are whole.

    Args:
        root: The data set's folder.
        tag: Names the labels.
        episode_index: [n].
        frame_index: [n]; within the episode.
        advantage: [n]; whether the advantage is positive.
        score: [n]; the advantage.
    """
    values = (episode_index, frame_index, advantage, np.asarray(score, np.float32))
    table = pyarrow().table(dict(zip(_COLUMNS, values, strict=True)))
    content = io.BytesIO()
    pyarrow("parquet").write_table(table, content)
    write_atomic(labels_path(root, tag), content.getvalue())


def read_advantages(dataset: LeRobotDataset, tag: str) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float32]]:
    """Return the labels of all frames in their order: whether positive, and the advantage, both [num_frames].

    Args:
        dataset: The data set.
        tag: Names the labels.

    Raises:
        DatasetError: There are none, they lack a column, or a frame has none, or several.
    """
    path = labels_path(dataset.root, tag)
    remedy = f"Write them anew: train a value model on the data set with data.advantage_tag={tag}."
    if not path.is_file():
        known = sorted(file.stem.removeprefix("advantages_") for file in path.parent.glob("advantages_*.parquet"))
        raise DatasetError(
            f"data.advantage_tag: '{path}' does not exist; the data set has labels of the names "
            f"{', '.join(known) or 'none'}. Choose one of them, or train a value model on it with "
            f"data.advantage_tag={tag}."
        )
    table = pyarrow("parquet").read_table(path)
    missing = [name for name in _COLUMNS if name not in table.column_names]
    if missing:
        raise DatasetError(f"data.advantage_tag: '{path}' has no column {', '.join(missing)}. {remedy}")
    nulls = [name for name in _COLUMNS if table[name].null_count]
    if nulls:
        raise DatasetError(f"data.advantage_tag: '{path}' has rows without {', '.join(nulls)}. {remedy}")
    episodes, frames, advantage, score = (table[name].to_numpy() for name in _COLUMNS)
    starts = np.array([record.start for record in dataset.episodes])
    lengths = np.array([record.length for record in dataset.episodes])
    inside = (episodes >= 0) & (episodes < len(starts))
    inside[inside] &= (frames[inside] >= 0) & (frames[inside] < lengths[episodes[inside]])
    if not inside.all():
        row = int(np.flatnonzero(~inside)[0])
        raise DatasetError(
            f"data.advantage_tag: '{path}' has a label for frame {frames[row]} of episode {episodes[row]}, which "
            f"'{dataset.root}' does not have. {remedy}"
        )
    indices = starts[episodes] + frames
    counts = np.bincount(indices, minlength=dataset.num_frames)
    if (counts != 1).any():
        index = int(np.flatnonzero(counts != 1)[0])
        raise DatasetError(
            f"data.advantage_tag: '{path}' has {counts[index]} labels of frame {index} of '{dataset.root}'; each frame "
            f"has one. {remedy}"
        )
    order = np.empty(dataset.num_frames, np.int64)
    order[indices] = np.arange(len(indices))
    return advantage[order].astype(bool), score[order].astype(np.float32)
