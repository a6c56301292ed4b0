"""Episodes of several data sets in one table, by whose numbers frames are sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class EpisodeTable:
    """``E`` episodes.

    Attributes:
        source: int64 [E]; number of the data set.
        start: int64 [E]; number of the first frame in its data set.
        length: int64 [E]; frames.
        succeeded: bool [E].
        is_demonstration: bool [E]; whether the data set has demonstrations alone.
        solved: bool [F]; which frames show the task solved, in the order of ``all_frames``.
    """

    source: IntArray
    start: IntArray
    length: IntArray
    succeeded: BoolArray
    is_demonstration: BoolArray
    solved: BoolArray

    def __len__(self) -> int:
        return len(self.length)

    @property
    def num_frames(self) -> int:
        """Frames of all episodes."""
        return int(self.length.sum())

    def select(self, rows: BoolArray) -> EpisodeTable:
        """Return some of the episodes."""
        return EpisodeTable(
            source=self.source[rows],
            start=self.start[rows],
            length=self.length[rows],
            succeeded=self.succeeded[rows],
            is_demonstration=self.is_demonstration[rows],
            solved=self.solved[np.repeat(rows, self.length)],
        )

    @classmethod
    def concat(cls, parts: Sequence[EpisodeTable]) -> EpisodeTable:
        """Return the episodes of all parts behind each other."""
        return cls(
            source=np.concatenate([part.source for part in parts]),
            start=np.concatenate([part.start for part in parts]),
            length=np.concatenate([part.length for part in parts]),
            succeeded=np.concatenate([part.succeeded for part in parts]),
            is_demonstration=np.concatenate([part.is_demonstration for part in parts]),
            solved=np.concatenate([part.solved for part in parts]),
        )

    def all_frames(self) -> tuple[IntArray, IntArray]:
        """Return the episode of every frame and its place in it, both int64 [F], in the order of the table."""
        episodes = np.repeat(np.arange(len(self)), self.length)
        first = np.repeat(self.length.cumsum() - self.length, self.length)
        return episodes, np.arange(self.num_frames) - first

    def sample(
        self, count: int, weights: FloatArray, generator: np.random.Generator, *, num_frames: int = 1
    ) -> tuple[IntArray, IntArray]:
        """Sample frames: a data set by its weight, and one of its frames uniformly, with replacement.

        Args:
            count: Frames (``n``).
            weights: [data sets].
            generator: Source of randomness.
            num_frames: Frames that an episode must still have from there on, that one included.

        Returns:
            Episodes and places in them, both int64 [n].
        """
        places = np.maximum(self.length - (num_frames - 1), 0)
        shares = np.bincount(self.source, places, len(weights))
        chance = np.where(shares > 0, weights, 0.0)[self.source] * places / shares.clip(min=1)[self.source]
        episodes = generator.choice(len(self), count, p=chance / chance.sum())
        return episodes, (generator.random(count) * places[episodes]).astype(np.int64)
