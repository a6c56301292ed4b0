"""Frames of LeRobot data sets for models that judge them: which episodes there are, and what a frame shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from rlinf.config.schema.data import AugmentationConfig
from rlinf.config.schema.value import FrameSourceConfig
from rlinf.data.augmentation import augment
from rlinf.data.datasets.lerobot.dataset import LeRobotDataset, camera_columns
from rlinf.data.episode_table import BoolArray, EpisodeTable, IntArray
from rlinf.errors import DatasetError
from rlinf.utils.seeding import derive_seed

_SUCCESS = ("next.success", "is_success")
"""Columns that say of a frame whether the task was solved."""


@dataclass(frozen=True, slots=True)
class SeenFrames:
    """What ``n`` samples show.

    Attributes:
        images: For each of the frames of a sample, uint8 [n, H, W, 3] by camera.
        tasks: ``n`` sentences.
    """

    images: Sequence[dict[str, torch.Tensor]]
    tasks: list[str]


class ValueFrames:
    """The frames of several data sets.

    Args:
        sources: The data sets.
        image_keys: Cameras, by the names that environments give them.
        max_episodes: Number of episodes to read of each; None reads all.
        augmentation: Random changes of images, where a seed is given.

    Raises:
        DatasetError: A data set is missing or damaged, lacks a camera, or does not say which episodes succeeded.
        MissingPackageError: pyarrow is not installed.

    Attributes:
        datasets: The data sets.
        episodes: All their episodes, in order.
        tasks: All their sentences, each once, sorted.
    """

    def __init__(
        self,
        sources: Sequence[FrameSourceConfig],
        *,
        image_keys: Sequence[str],
        max_episodes: int | None = None,
        augmentation: AugmentationConfig | None = None,
    ) -> None:
        self.augmentation = augmentation or AugmentationConfig()
        self.datasets = [LeRobotDataset(Path(source.path), source.columns) for source in sources]
        self.tasks = sorted({task for dataset in self.datasets for task in dataset.tasks})
        self._cameras = camera_columns(image_keys)
        for dataset in self.datasets:
            dataset.require_cameras(self._cameras)
        parts = [
            _episodes(number, dataset, source, max_episodes)
            for number, (dataset, source) in enumerate(zip(self.datasets, sources, strict=True))
        ]
        self.episodes = EpisodeTable.concat(parts)

    def read(
        self, episodes: EpisodeTable, chosen: IntArray, frames: IntArray, *, seed: int | None = None, first: int = 0
    ) -> SeenFrames:
        """Read some frames.

        Args:
            episodes: ``episodes``, or some of them.
            chosen: int64 [n]; numbers of rows of ``episodes``.
            frames: int64 [n, F]; places in them.
            seed: Of the batch, whose images are changed at random; None shows them as they are.
            first: Number of the first of these samples in its batch.
        """
        sources = episodes.source[chosen]
        indices = episodes.start[chosen][:, None] + frames
        tasks = [""] * len(chosen)
        empty: list[torch.Tensor] = [torch.empty(0)] * len(chosen)
        images = [{key: list(empty) for key in self._cameras.values()} for _ in range(frames.shape[1])]
        for source in np.unique(sources).tolist():
            dataset, rows = self.datasets[source], np.flatnonzero(sources == source)
            for row, task in zip(rows.tolist(), dataset.tasks_of(indices[rows, 0]), strict=True):
                tasks[row] = task
            found = dataset.frames(indices[rows].reshape(-1), list(self._cameras))
            for name, key in self._cameras.items():
                pixels = torch.from_numpy(found[name].reshape(len(rows), frames.shape[1], *found[name].shape[1:]))
                for at, row in enumerate(rows.tolist()):
                    for number in range(frames.shape[1]):
                        images[number][key][row] = pixels[at, number]
        rows_of_batch = slice(first, first + len(chosen))
        return SeenFrames(
            [
                {key: self._changed(torch.stack(shown[key]), seed, key, number, rows_of_batch) for key in shown}
                for number, shown in enumerate(images)
            ],
            tasks,
        )

    def _changed(self, images: torch.Tensor, seed: int | None, key: str, number: int, rows: slice) -> torch.Tensor:
        if seed is None:
            return images
        return augment(images, self.augmentation, seed=derive_seed(seed, key, number), rows=rows)


def _episodes(number: int, dataset: LeRobotDataset, source: FrameSourceConfig, limit: int | None) -> EpisodeTable:
    records = dataset.episodes[:limit]
    start = np.array([record.start for record in records], np.int64)
    length = np.array([record.length for record in records], np.int64)
    is_demonstration = np.full(len(records), source.type == "sft")
    solved = _solved_frames(dataset, source)
    parts = [solved[begin : begin + count] for begin, count in zip(start, length, strict=True)]
    return EpisodeTable(
        source=np.full(len(records), number),
        start=start,
        length=length,
        succeeded=is_demonstration | np.array([part.any() for part in parts], bool),
        is_demonstration=is_demonstration,
        # What a frame's action brought about is seen in the next frame.
        solved=np.concatenate([np.append(False, part[:-1]) for part in parts]),
    )


def _solved_frames(dataset: LeRobotDataset, source: FrameSourceConfig) -> BoolArray:
    """Return whether the task was solved by the action of each frame; demonstrations need not say so."""
    name = next((name for name in _SUCCESS if name in dataset.features), None)
    if name is not None:
        solved: BoolArray = dataset.column(name).reshape(-1).astype(bool)
        return solved
    if source.type == "sft":
        return np.zeros(dataset.num_frames, bool)
    raise DatasetError(
        f"data.path: '{dataset.root}' does not say which episodes succeeded: it has neither {' nor '.join(_SUCCESS)}. "
        "Set type: sft where all of them did, or write the data set with one."
    )
