"""RECAP: the return of the rest of an episode, and by how much a few steps turned out better than that.

Pi*0.6: a VLA that learns from experience (arXiv 2511.14759), section IV: a step costs 1, a failure much more; the value
is a distribution over bins; the advantage takes ``N`` steps as they were and the model's estimate behind them.
"""

from __future__ import annotations

import numpy as np
import torch

from rlinf.algorithms.frame_values.frame_objective import FrameObjective, Scale, largest, projected
from rlinf.config.schema.value import RecapValueLossConfig
from rlinf.data.episode_table import BoolArray, EpisodeTable, FloatArray, IntArray
from rlinf.errors import DatasetError

_LOW, _HIGH = -1.0, 0.0
"""Returns are brought to this range: the lowest and the highest of the data."""


class RecapValue(FrameObjective):
    """See ``FrameObjective``; targets are returns, brought to [-1, 0]. The scale is their lowest and highest."""

    cfg: RecapValueLossConfig

    def fit(self, episodes: EpisodeTable) -> Scale:
        """See ``FrameObjective``."""
        returns = self.returns(episodes, *episodes.all_frames())
        low, high = float(returns.min()), float(returns.max())
        if low == high:
            raise DatasetError(
                f"data.path: every frame has the return {low:g}, from which nothing is learned. Choose data sets with "
                "longer episodes, or with failures."
            )
        return low, high

    def returns(self, episodes: EpisodeTable, chosen: IntArray, places: IntArray) -> FloatArray:
        """Return the discounted rewards from frames to the ends of their episodes, [n].

        Args:
            episodes: All of them.
            chosen: int64 [n]; numbers of episodes.
            places: int64 [n]; places in them.
        """
        last = np.where(episodes.succeeded[chosen], 0.0, self.cfg.failure_reward)
        steps = episodes.length[chosen] - 1 - places
        gamma = self.cfg.gamma
        cost = steps if gamma == 1.0 else (1.0 - gamma**steps) / (1.0 - gamma)
        found: FloatArray = gamma**steps * last - cost
        return found

    def targets(
        self, episodes: EpisodeTable, chosen: IntArray, places: IntArray, scale: Scale, generator: np.random.Generator
    ) -> tuple[IntArray, FloatArray]:
        """See ``FrameObjective``."""
        low, high = scale
        return places[:, None], (self.returns(episodes, chosen, places) - high) / (high - low)

    def losses(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """See ``FrameObjective``: the cross-entropy to the bins next to the target."""
        wanted = projected(targets, self.num_bins, _LOW, _HIGH).unsqueeze(1)
        return -(wanted * logits.log_softmax(-1)).sum(-1)

    def predict(self, logits: torch.Tensor) -> torch.Tensor:
        """See ``FrameObjective``: the mean of the distribution."""
        centers = torch.linspace(_LOW, _HIGH, self.num_bins, device=logits.device)
        return (logits.softmax(-1) * centers).sum(-1)

    def advantages(self, episodes: EpisodeTable, values: FloatArray, scale: Scale) -> tuple[FloatArray, BoolArray]:
        """See ``FrameObjective``: ``(sum_k gamma^k r_{t+k} + gamma^N V(t+N) - V(t)) / range``, 0 behind the end.

        An ensemble's value is its mean.
        """
        low, high = scale
        chosen, places = episodes.all_frames()
        value = values.mean(1) * (high - low) + high
        returns = self.returns(episodes, chosen, places)
        ahead = np.arange(len(places)) + self.cfg.advantage_lookahead_step
        inside = places + self.cfg.advantage_lookahead_step < episodes.length[chosen]
        ahead = np.where(inside, ahead, 0)
        discount = np.where(inside, self.cfg.gamma**self.cfg.advantage_lookahead_step, 0.0)
        # The rewards of N steps are what the return loses over them.
        rewards = returns - discount * returns[ahead]
        advantages = (rewards + discount * value[ahead] - value) / (high - low)
        return advantages, largest(advantages, self.cfg.positive_quantile)
