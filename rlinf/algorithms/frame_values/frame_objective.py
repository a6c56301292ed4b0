"""The contract between a loss of recorded frames and its learner."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from rlinf.algorithms.frame_values.rank_correlation import rank_correlation
from rlinf.algorithms.types import Metrics, metric_pair
from rlinf.data.episode_table import BoolArray, EpisodeTable, FloatArray, IntArray

Scale = tuple[float, float]
"""What targets are brought to the model's units by; found in the data that a model learns from, and kept with it."""


class FrameObjective(abc.ABC):
    """What a model learns to say about ``F`` frames of an episode.

    Args:
        cfg: The keys of the loss.
        num_bins: Bins of the model's distribution (``B``).
    """

    num_frames: ClassVar[int] = 1
    """Frames that the model sees side by side (``F``)."""

    def __init__(self, cfg: Any, *, num_bins: int) -> None:
        self.cfg, self.num_bins = cfg, num_bins

    @abc.abstractmethod
    def fit(self, episodes: EpisodeTable) -> Scale:
        """Return the scale of the targets of the episodes that are learned from.

        Raises:
            DatasetError: Nothing can be learned from them.
        """

    def sample(
        self, episodes: EpisodeTable, count: int, weights: FloatArray, generator: np.random.Generator
    ) -> tuple[IntArray, IntArray]:
        """Return the episodes and places of a batch, both int64 [count].

        Args:
            episodes: Those that are learned from.
            count: Of the whole batch.
            weights: Of the data sets.
            generator: Source of randomness.
        """
        return episodes.sample(count, weights, generator, num_frames=self.num_frames)

    @abc.abstractmethod
    def targets(
        self, episodes: EpisodeTable, chosen: IntArray, places: IntArray, scale: Scale, generator: np.random.Generator
    ) -> tuple[IntArray, FloatArray]:
        """Return which frames the model sees, int64 [n, F] (places in the episode), and targets [n].

        Args:
            episodes: All of them.
            chosen: int64 [n]; numbers of episodes.
            places: int64 [n]; a frame of each, with ``num_frames - 1`` more behind it.
            scale: See ``fit``.
            generator: Source of randomness.
        """

    @property
    def changed_share(self) -> float:
        """Share of the samples for which ``change_sentences`` may change something: unless overridden, none."""
        return 0.0

    def change_sentences(
        self, tasks: list[str], targets: FloatArray, known: Sequence[str], draws: FloatArray
    ) -> tuple[list[str], FloatArray]:
        """Return sentences that frames are judged by in place of their own, and targets [n] that go with them.

        Args:
            tasks: ``n`` sentences of frames.
            targets: [n].
            known: All sentences of the data sets.
            draws: [n]; random numbers between 0 and 1: below ``changed_share`` something is changed.

        Raises:
            DatasetError: There is no other sentence.
        """
        return tasks, targets

    @abc.abstractmethod
    def losses(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss of each model of an ensemble, float32 [n, M].

        Args:
            logits: float32 [n, M, B].
            targets: float32 [n].
        """

    @abc.abstractmethod
    def predict(self, logits: torch.Tensor) -> torch.Tensor:
        """Return what each model expects, float32 [n, M], in the units of targets."""

    def metrics(self, logits: torch.Tensor, targets: torch.Tensor, losses: torch.Tensor) -> Metrics:
        """Return the loss and the distance of predictions from targets, in the mean of samples and models.

        Args:
            logits: float32 [n, M, B].
            targets: float32 [n].
            losses: float32 [n, M].
        """
        error = (self.predict(logits.detach()) - self.target_values(targets).unsqueeze(1)).abs()
        count = torch.tensor(float(losses.numel()))
        return {
            "value_loss": metric_pair(losses.detach().double().sum(), count),
            "value_error": metric_pair(error.double().sum(), count),
        }

    def target_values(self, targets: torch.Tensor) -> torch.Tensor:
        """Return what ``predict`` would be if it were right, float32 [n]."""
        return targets

    def agreement(self, predicted: FloatArray, wanted: FloatArray) -> dict[str, float]:
        """Return how well predictions [n] agree with what they would be if they were right, [n], besides the loss."""
        return {"rank_correlation": rank_correlation(predicted, wanted)}

    def frames_to_judge(self, episodes: EpisodeTable, chosen: IntArray, places: IntArray) -> IntArray:
        """Return which frames the model sees to judge a frame, int64 [n, F]: unless overridden, that one alone."""
        return places[:, None]

    @abc.abstractmethod
    def advantages(self, episodes: EpisodeTable, values: FloatArray, scale: Scale) -> tuple[FloatArray, BoolArray]:
        """Return the advantage of every frame [T], in the order of ``EpisodeTable.all_frames``, and which are positive.

        Args:
            episodes: All of them.
            values: [T, M]; what the models predict for ``frames_to_judge``.
            scale: See ``fit``.
        """


def projected(values: torch.Tensor, num_bins: int, low: float, high: float) -> torch.Tensor:
    """Return values as distributions over the two bins next to each, with the value as their mean (Bellemare et al.).

    See arXiv 1707.06887, equation 7, for a single atom.

    Args:
        values: float32 [n]; brought into the range.
        num_bins: ``B``.
        low: Value of the first bin.
        high: Value of the last bin.

    Returns:
        float32 [n, B].
    """
    place = (values.clamp(low, high) - low) / (high - low) * (num_bins - 1)
    below = place.floor().clamp(max=num_bins - 2)
    upper = (place - below).unsqueeze(1)
    target = torch.zeros(len(values), num_bins, device=values.device)
    at = below.long().unsqueeze(1)
    return target.scatter_add(1, at, 1.0 - upper).scatter_add(1, at + 1, upper)


def largest(scores: FloatArray, share: float) -> BoolArray:
    """Return which scores are among the largest: at least as large as the quantile ``1 - share`` of all.

    Args:
        scores: [n]; at least one.
        share: Between 0 and 1.
    """
    found: BoolArray = scores >= np.quantile(scores, 1.0 - share)
    return found
