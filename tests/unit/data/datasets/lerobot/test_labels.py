"""Labels of frames are read in the order of the frames, and nothing is guessed where one is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlinf.data.datasets.lerobot.dataset import LeRobotDataset
from rlinf.data.datasets.lerobot.format import pyarrow
from rlinf.data.datasets.lerobot.labels import labels_path, read_advantages, write_advantages
from rlinf.errors import DatasetError
from tests.unit.data.frame_sets import LENGTHS, frame_set

pytest.importorskip("pyarrow")
EPISODES = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
FRAMES = np.concatenate([np.arange(length) for length in LENGTHS])
SCORES = np.linspace(-1.0, 1.0, len(FRAMES))


@pytest.fixture
def dataset(tmp_path: Path) -> LeRobotDataset:
    """A data set of three episodes."""
    return LeRobotDataset(frame_set(tmp_path / "data"))


def write(dataset: LeRobotDataset, rows: Any, tag: str = "q30") -> None:
    """Write the labels of some frames."""
    write_advantages(dataset.root, tag, EPISODES[rows], FRAMES[rows], SCORES[rows] > 0, SCORES[rows])


def test_labels_come_back_in_the_order_of_the_frames(dataset: LeRobotDataset) -> None:
    write(dataset, np.random.default_rng(0).permutation(len(FRAMES)))
    positive, scores = read_advantages(dataset, "q30")
    assert positive.tolist() == (SCORES > 0).tolist()
    np.testing.assert_allclose(scores, SCORES, atol=1e-6)
    assert (positive.dtype, scores.dtype) == (np.bool_, np.float32)
    assert [path.name for path in labels_path(dataset.root, "q30").parent.glob("*advantages*")] == [
        "advantages_q30.parquet"
    ]


def test_new_labels_take_the_place_of_older_ones(dataset: LeRobotDataset) -> None:
    write(dataset, slice(0, 3))
    write(dataset, slice(None))
    assert len(read_advantages(dataset, "q30")[0]) == len(FRAMES)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (slice(1, None), "has 0 labels of frame 0"),
        ([*range(len(FRAMES)), 3], "has 2 labels of frame 3"),
    ],
)
def test_each_frame_has_one_label(rows: Any, message: str, dataset: LeRobotDataset) -> None:
    write(dataset, rows)
    with pytest.raises(DatasetError, match=message):
        read_advantages(dataset, "q30")


@pytest.mark.parametrize(("episode", "frame"), [(3, 0), (1, 1), (-1, 0), (0, -1)])
def test_labels_of_frames_that_are_not_there_are_refused(episode: int, frame: int, dataset: LeRobotDataset) -> None:
    episodes, frames = np.append(EPISODES, episode), np.append(FRAMES, frame)
    write_advantages(dataset.root, "q30", episodes, frames, np.append(SCORES > 0, True), np.append(SCORES, 1.0))
    with pytest.raises(DatasetError, match=f"frame {frame} of episode {episode}, which"):
        read_advantages(dataset, "q30")


def test_missing_labels_are_named_with_those_that_are_there(dataset: LeRobotDataset) -> None:
    with pytest.raises(DatasetError, match=r"advantages_q30.parquet' does not exist.* names none.*advantage_tag=q30"):
        read_advantages(dataset, "q30")
    write(dataset, slice(None), "other")
    with pytest.raises(DatasetError, match="names other"):
        read_advantages(dataset, "q30")


def test_a_row_without_a_label_is_refused(dataset: LeRobotDataset) -> None:
    write(dataset, slice(None))
    path, parquet = labels_path(dataset.root, "q30"), pyarrow("parquet")
    columns = parquet.read_table(path).to_pydict()
    columns["advantage"][4] = None
    parquet.write_table(pyarrow().table(columns), path)
    with pytest.raises(DatasetError, match="has rows without advantage"):
        read_advantages(dataset, "q30")


def test_a_file_without_a_column_is_refused(dataset: LeRobotDataset) -> None:
    write(dataset, slice(None))
    path = labels_path(dataset.root, "q30")
    parquet = pyarrow("parquet")
    parquet.write_table(parquet.read_table(path).drop_columns(["advantage"]), path)
    with pytest.raises(DatasetError, match="has no column advantage"):
        read_advantages(dataset, "q30")
