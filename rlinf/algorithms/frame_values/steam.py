"""STEAM: how far one frame of an episode is ahead of another, judged by the most doubtful of several models.

Self-supervised temporal ensemble advantage modelling learns from the order of frames alone: a pair of frames in their
order, or reversed, is classified by the signed number of steps between them. The bins of a distribution over ``2 k``
distances (0 is not among them) are equally wide; the lower half goes back.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch.nn import functional as F

from rlinf.algorithms.frame_values.frame_objective import FrameObjective, Scale, largest
from rlinf.config.schema.value import SteamValueLossConfig
from rlinf.data.episode_table import BoolArray, EpisodeTable, FloatArray, IntArray
from rlinf.errors import DatasetError


class SteamValue(FrameObjective):
    """See ``FrameObjective``; targets are numbers of bins. The scale is the length that distances refer to, and 0."""

    cfg: SteamValueLossConfig
    num_frames: ClassVar[int] = 2

    def fit(self, episodes: EpisodeTable) -> Scale:
        """See ``FrameObjective``."""
        lengths = episodes.length[episodes.length >= self.num_frames]
        if not len(lengths):
            raise DatasetError("data.path: no episode has two frames. Choose data sets with longer episodes.")
        percentile = self.cfg.length_scale_percentile
        return (0.0 if percentile is None else float(np.percentile(lengths, percentile))), 0.0

    def targets(
        self, episodes: EpisodeTable, chosen: IntArray, places: IntArray, scale: Scale, generator: np.random.Generator
    ) -> tuple[IntArray, FloatArray]:
        """See ``FrameObjective``: a distance from 1 to ``k`` within the episode, forwards or backwards, uniformly."""
        lengths = episodes.length[chosen]
        reach = np.minimum(self.cfg.k, lengths - 1 - places)
        distance = 1 + (generator.random(len(places)) * reach).astype(np.int64)
        backwards = generator.random(len(places)) < 0.5
        pairs = np.stack([places, places + distance], 1)
        pairs[backwards] = pairs[backwards, ::-1]
        signed = np.where(backwards, -distance, distance) * np.maximum(1.0, scale[0] / lengths)
        return pairs, self.bins(signed).astype(np.float64)

    def bins(self, distances: FloatArray) -> IntArray:
        """Return the bins of signed distances in steps, none of which is 0, int64 [n]; those beyond ``k`` are outmost.

        Args:
            distances: [n].
        """
        k = self.cfg.k
        steps = np.sign(distances) * np.clip(np.round(np.abs(distances)), 1, k)
        # -k to -1 are the first k places, 1 to k the last.
        places = np.where(steps < 0, steps + k, steps + k - 1)
        found: IntArray = (places * self.num_bins // (2 * k)).astype(np.int64)
        return found

    def losses(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """See ``FrameObjective``: cross-entropy with smoothed labels."""
        count, members = logits.shape[:2]
        wanted = targets.long().unsqueeze(1).expand(count, members).flatten()
        losses = F.cross_entropy(
            logits.flatten(0, 1), wanted, label_smoothing=self.cfg.label_smoothing, reduction="none"
        )
        return losses.view(count, members)

    def predict(self, logits: torch.Tensor) -> torch.Tensor:
        """See ``FrameObjective``: the mean of the bins' places, which run from -1 to 1 without 0."""
        return (logits.softmax(-1) * self._places(logits.device)).sum(-1)

    def target_values(self, targets: torch.Tensor) -> torch.Tensor:
        """See ``FrameObjective``: the place of the target's bin."""
        return self._places(targets.device)[targets.long()]

    def frames_to_judge(self, episodes: EpisodeTable, chosen: IntArray, places: IntArray) -> IntArray:
        """See ``FrameObjective``: the frame, and the one ``k`` steps later or the last one."""
        return np.stack([places, np.minimum(places + self.cfg.k, episodes.length[chosen] - 1)], 1)

    def advantages(self, episodes: EpisodeTable, values: FloatArray, scale: Scale) -> tuple[FloatArray, BoolArray]:
        """See ``FrameObjective``: the smallest prediction of the ensemble; 0 for the last frame of an episode."""
        chosen, places = episodes.all_frames()
        is_last = places == episodes.length[chosen] - 1
        scores: FloatArray = np.where(is_last, 0.0, values.min(1))
        expert = episodes.is_demonstration[chosen]
        positive: BoolArray = expert.copy()
        if self.cfg.label_mode == "threshold":
            positive |= scores > self.cfg.positive_threshold
            return scores, positive
        for kind, share in ((~expert, self.cfg.rollout_quantile), (expert, self.cfg.expert_quantile)):
            if share is not None and kind.any():
                positive[kind] = largest(scores[kind], share)
        return scores, positive

    def _places(self, device: torch.device) -> torch.Tensor:
        half = self.num_bins // 2
        numbers = torch.arange(self.num_bins, device=device, dtype=torch.float32) - half
        return torch.where(numbers < 0, numbers, numbers + 1) / half
