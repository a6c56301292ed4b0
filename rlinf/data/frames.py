"""Batches of frames with the actions that follow them, read from LeRobot data sets as they are needed.

What a batch holds is a function of its number alone, so that a run resumes with the batches it would have had, and any
number of ranks reads the same ones, each its own rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from rlinf.config.schema.data import LeRobotDataConfig
from rlinf.data.augmentation import augment
from rlinf.data.datasets.lerobot.dataset import LeRobotDataset, camera_columns
from rlinf.data.datasets.lerobot.labels import read_advantages
from rlinf.data.messages.embodied import CROPPED, Observation
from rlinf.errors import DatasetError
from rlinf.utils.seeding import derive_seed

_STATE = "observation.state"
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FrameBatch:
    """Rows of a batch.

    Attributes:
        obs: Observations of ``n`` frames.
        actions: float32 [n, H, A]; those of the frame and after it. Behind the episode's end the last one goes on.
        is_action: bool [n, H]; false behind the episode's end.
        is_positive: bool [n]; labels of the frames. None without ``data.advantage_tag``.
    """

    obs: Observation
    actions: torch.Tensor
    is_action: torch.Tensor
    is_positive: torch.Tensor | None = None


class FrameStream:
    """A mixture of data sets, of which frames are sampled uniformly and with replacement.

    Args:
        cfg: The ``data`` section.
        horizon: Actions to a frame (``H``).
        image_keys: Keys of observations that images are read for; no others are decoded.
        seed: Of the run.

    Raises:
        DatasetError: A data set is missing or damaged, lacks a camera or labels, or has other actions than the first.
        MissingPackageError: pyarrow is not installed.
    """

    def __init__(self, cfg: LeRobotDataConfig, *, horizon: int, image_keys: Sequence[str], seed: int) -> None:
        self.cfg, self.horizon, self.seed = cfg, horizon, seed
        self.datasets = [LeRobotDataset(Path(cfg.path), cfg.columns)]
        self.datasets += [
            LeRobotDataset(Path(e.path), cfg.columns if e.columns is None else e.columns) for e in cfg.mixture
        ]
        weights = np.array([cfg.weight, *(entry.weight for entry in cfg.mixture)])
        self._shares = weights / weights.sum()
        self._cameras = camera_columns(image_keys)
        self._ends = [self._episode_ends(dataset) for dataset in self.datasets]
        for dataset in self.datasets:
            self._check(dataset)
        tag = cfg.advantage_tag
        self._labels = None if tag is None else [read_advantages(dataset, tag)[0] for dataset in self.datasets]

    @property
    def num_frames(self) -> int:
        """Frames of all data sets."""
        return sum(dataset.num_frames for dataset in self.datasets)

    def sample(self, number: int, size: int) -> tuple[IntArray, IntArray]:
        """Return data sets and frames of a batch, both int64 [size].

        Args:
            number: Of the batch, from 0.
            size: Of the whole batch.
        """
        generator = np.random.default_rng(derive_seed(self.seed, "frames", number))
        sources = generator.choice(len(self.datasets), size, p=self._shares)
        lengths = np.array([len(ends) for ends in self._ends])
        return sources.astype(np.int64), (generator.random(size) * lengths[sources]).astype(np.int64)

    def read(self, number: int, size: int, rows: slice) -> FrameBatch:
        """Return some rows of a batch, augmented as the keys say.

        Args:
            number: Of the batch.
            size: Of the whole batch.
            rows: Which of them.
        """
        all_sources, all_frames = self.sample(number, size)
        sources, frames = all_sources[rows], all_frames[rows]
        states: list[torch.Tensor] = [torch.empty(0)] * len(frames)
        actions, tasks, ends = list(states), [""] * len(frames), np.zeros(len(frames), np.int64)
        images = {key: list(states) for key in self._cameras.values()}
        for source in np.unique(sources).tolist():
            dataset, places = self.datasets[source], np.flatnonzero(sources == source)
            chosen = frames[places]
            ends[places] = self._ends[source][chosen]
            steps = np.minimum(chosen[:, None] + np.arange(self.horizon), ends[places, None] - 1)
            found = dataset.frames(chosen, [name for name in self._cameras] + self._state_names(dataset))
            columns = {name: torch.from_numpy(values) for name, values in found.items()}
            chunks = torch.from_numpy(dataset.column("action")[steps]).float()
            for at, (place, task) in enumerate(zip(places.tolist(), dataset.tasks_of(chosen), strict=True)):
                tasks[place], actions[place] = task, chunks[at]
                for name, key in self._cameras.items():
                    images[key][place] = columns[name][at]
                if _STATE in columns:
                    states[place] = columns[_STATE][at].float()
        obs: Observation = {"task_descriptions": tasks}
        if self._state_names(self.datasets[0]):
            obs["states"] = torch.stack(states)
        obs |= {
            key: augment(torch.stack(images[key]), self.cfg.augmentation, seed=self._seed(number, key), rows=rows)
            for key in images
        }
        if self.cfg.augmentation.crop_area < 1.0:
            obs[CROPPED] = torch.ones(len(frames), dtype=torch.bool)
        remaining = torch.from_numpy(ends - frames).unsqueeze(1)
        is_action = torch.arange(self.horizon) < remaining
        return FrameBatch(obs, torch.stack(actions), is_action, self._labels_of(sources, frames))

    def num_actions(self, number: int, size: int) -> int:
        """Return how many actions of a batch are before the ends of their episodes."""
        sources, frames = self.sample(number, size)
        ends = np.array([self._ends[source][frame] for source, frame in zip(sources, frames, strict=True)])
        return int(np.minimum(ends - frames, self.horizon).sum())

    def _labels_of(self, sources: IntArray, frames: IntArray) -> torch.Tensor | None:
        if self._labels is None:
            return None
        return torch.tensor([bool(self._labels[s][f]) for s, f in zip(sources, frames, strict=True)])

    def _seed(self, number: int, key: str) -> int:
        return derive_seed(self.seed, "augmentation", number, key)

    def _state_names(self, dataset: LeRobotDataset) -> list[str]:
        return [_STATE] if _STATE in dataset.features else []

    def _episode_ends(self, dataset: LeRobotDataset) -> IntArray:
        """Return the number behind the last frame of each frame's episode; of the episodes that are read."""
        records = dataset.episodes[: self.cfg.max_episodes]
        return np.concatenate([np.full(record.length, record.end, np.int64) for record in records])

    def _check(self, dataset: LeRobotDataset) -> None:
        dataset.require_cameras(self._cameras)
        if "action" not in dataset.features:
            raise DatasetError(
                f"data.path: '{dataset.root}' has no column action; it has {', '.join(dataset.features)}. Name the one "
                "that holds the actions: data.columns.actions."
            )
        first = self.datasets[0]
        for name in ("action", _STATE):
            ours, theirs = (d.features[name].shape if name in d.features else None for d in (dataset, first))
            if ours != theirs:
                raise DatasetError(
                    f"data.mixture: '{dataset.root}' has {name} of shape {ours}, '{first.root}' of {theirs}. Data sets "
                    "of a mixture are of one robot."
                )
