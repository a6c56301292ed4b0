"""Which frames are drawn when: a function of seed and step alone, so that there is no state to save."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rlinf.data.lerobot.dataset import LeRobotDataset
from rlinf.errors import DatasetError
from rlinf.utils.seeding import derive_seed


def split_episodes(num_episodes: int, *, val_share: float, seed: int) -> tuple[list[int], list[int]]:
    """Divide episodes into those to train on and those to validate on; at least one of each where there are two.

    Args:
        num_episodes: How many there are.
        val_share: Share of the second part, 0 to 1; 0 leaves it empty.
        seed: Names the division.

    Returns:
        Indices for training and for validation, both ascending.
    """
    order = np.random.default_rng(derive_seed(seed, "dataset", "split")).permutation(num_episodes).tolist()
    count = min(max(round(num_episodes * val_share), 1), max(num_episodes - 1, 0)) if val_share > 0 else 0
    return sorted(order[count:]), sorted(order[:count])


@dataclass(frozen=True)
class FrameSampler:
    """Batches of frames without replacement, epoch after epoch, each in an order of its own.

    A global batch is the same whatever the number of ranks; each takes its part. The last frames of an epoch that fill
    no batch are left out of it.

    Args:
        frames: int64 [N]; what to draw from.
        batch_size: Frames in a global batch.
        seed: Names the order.
        rank: Whose part to return.
        num_ranks: Number of parts; divides ``batch_size``.
    """

    frames: npt.NDArray[np.int64]
    batch_size: int
    seed: int
    rank: int = 0
    num_ranks: int = 1

    def __post_init__(self) -> None:
        if self.batch_size % self.num_ranks:
            raise DatasetError(f"batch_size {self.batch_size} is not a multiple of the {self.num_ranks} ranks.")
        if len(self.frames) < self.batch_size:
            raise DatasetError(f"{len(self.frames)} frames are fewer than batch_size {self.batch_size}. Lower it.")

    @staticmethod
    def of_episodes(
        dataset: LeRobotDataset, episodes: list[int], *, batch_size: int, seed: int, rank: int = 0, num_ranks: int = 1
    ) -> FrameSampler:
        """Draw from some episodes of a data set."""
        records = [dataset.episodes[number] for number in episodes]
        parts = [np.arange(record.start, record.end) for record in records]
        frames = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        return FrameSampler(frames, batch_size, seed, rank, num_ranks)

    @property
    def batches_per_epoch(self) -> int:
        """Batches until every frame (but a remainder) has been drawn."""
        return len(self.frames) // self.batch_size

    def batch(self, step: int) -> npt.NDArray[np.int64]:
        """Return this rank's frames of a step, from 0 on: int64 [batch_size / num_ranks]."""
        epoch, number = divmod(step, self.batches_per_epoch)
        order = np.random.default_rng(derive_seed(self.seed, "dataset", "order", epoch)).permutation(len(self.frames))
        start = number * self.batch_size
        return self.frames[order[start : start + self.batch_size]][self.rank :: self.num_ranks]
