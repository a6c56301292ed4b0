"""Whether a frame shows the task solved: what a learned reward is made of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional as F

from rlinf.algorithms.frame_values.frame_objective import FrameObjective, Scale
from rlinf.config.schema.value import SuccessLossConfig
from rlinf.data.episode_table import BoolArray, EpisodeTable, FloatArray, IntArray
from rlinf.errors import DatasetError


class SuccessValue(FrameObjective):
    """See ``FrameObjective``; targets are 0 and 1, and the scale is not used."""

    cfg: SuccessLossConfig

    def fit(self, episodes: EpisodeTable) -> Scale:
        """See ``FrameObjective``."""
        solved = int(episodes.solved.sum())
        if not 0 < solved < episodes.num_frames:
            raise DatasetError(
                f"data.path: {solved} of {episodes.num_frames} frames show the task solved; both kinds are needed. "
                "Collect episodes that go on after success (env.eval.ignore_terminations=true), some of which fail."
            )
        return 0.0, 1.0

    def sample(
        self, episodes: EpisodeTable, count: int, weights: FloatArray, generator: np.random.Generator
    ) -> tuple[IntArray, IntArray]:
        """See ``FrameObjective``: a share of the frames, drawn one by one, are solved ones; each kind uniformly."""
        episode, place = episodes.all_frames()
        is_solved = generator.random(count) < self.cfg.success_share
        rows = np.empty(count, np.int64)
        for wanted in (True, False):
            frames = np.flatnonzero(episodes.solved == wanted)
            chance = weights[episodes.source[episode[frames]]]
            picked = is_solved == wanted
            rows[picked] = generator.choice(frames, int(picked.sum()), p=chance / chance.sum())
        return episode[rows], place[rows]

    def targets(
        self, episodes: EpisodeTable, chosen: IntArray, places: IntArray, scale: Scale, generator: np.random.Generator
    ) -> tuple[IntArray, FloatArray]:
        """See ``FrameObjective``."""
        first = episodes.length.cumsum() - episodes.length
        return places[:, None], episodes.solved[first[chosen] + places].astype(np.float64)

    @property
    def changed_share(self) -> float:
        """See ``FrameObjective``."""
        return float(self.cfg.wrong_sentence_share)

    def change_sentences(
        self, tasks: list[str], targets: FloatArray, known: Sequence[str], draws: FloatArray
    ) -> tuple[list[str], FloatArray]:
        """See ``FrameObjective``: solved frames are not solved by the sentence of another task, each alike likely."""
        is_wrong = (draws < self.changed_share) & (targets > 0.5)
        sentences = list(tasks)
        for row in np.flatnonzero(is_wrong).tolist():
            others = [task for task in known if task != sentences[row]]
            if not others:
                raise DatasetError(
                    f"algorithm.wrong_sentence_share: received {self.changed_share:g}; the data sets have one "
                    f"sentence, {sentences[row]!r}. Set it to 0, or add data sets of other tasks."
                )
            sentences[row] = others[int(draws[row] / self.changed_share * len(others))]
        return sentences, np.where(is_wrong, 0.0, targets)

    def losses(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """See ``FrameObjective``: binary cross-entropy."""
        said = logits.squeeze(-1)
        return F.binary_cross_entropy_with_logits(said, targets.unsqueeze(1).expand_as(said), reduction="none")

    def predict(self, logits: torch.Tensor) -> torch.Tensor:
        """See ``FrameObjective``: the probability."""
        return logits.squeeze(-1).sigmoid()

    def agreement(self, predicted: FloatArray, wanted: FloatArray) -> dict[str, float]:
        """See ``FrameObjective``: at a threshold of 0.5; what is not defined is 0."""
        said, solved = predicted > 0.5, wanted > 0.5
        hits = float((said & solved).sum())
        return {
            "accuracy": float((said == solved).mean()),
            "precision": hits / max(float(said.sum()), 1.0),
            "recall": hits / max(float(solved.sum()), 1.0),
        }

    def advantages(self, episodes: EpisodeTable, values: FloatArray, scale: Scale) -> tuple[FloatArray, BoolArray]:
        """See ``FrameObjective``: the probability itself; likely successes are positive."""
        probability: FloatArray = values.mean(1)
        return probability, probability > 0.5
