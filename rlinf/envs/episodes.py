"""Running totals of the present episodes, and the metrics of those that end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlinf.envs.raw_chunk import BoolArray, FloatArray, IntArray, RawChunk

_STATE = ("steps", "episodes", "_returns", "_success_once", "_reports_success", "_last_reward")


class EpisodeTracker:
    """Shapes rewards and accumulates episode metrics, which are those of unshaped rewards, for ``B`` environments.

    Args:
        num_envs: ``B``.
        reward_coef: Factor on every reward.
        use_rel_reward: Report the change of the simulator's reward since the step before; an episode's first step
            changes it from 0.
        reference_returns: Returns of a random and of an expert policy, between which ``normalized_score`` is measured;
            None leaves it out.
    """

    def __init__(
        self,
        num_envs: int,
        *,
        reward_coef: float,
        use_rel_reward: bool,
        reference_returns: Sequence[float] | None = None,
    ) -> None:
        self._reference = None if reference_returns is None else (reference_returns[0], reference_returns[1])
        self._reward_coef = reward_coef
        self._use_rel_reward = use_rel_reward
        self.steps: IntArray = np.zeros(num_envs, np.int64)
        self.episodes: IntArray = np.zeros(num_envs, np.int64)
        self._returns = np.zeros(num_envs, np.float64)
        self._success_once = np.zeros(num_envs, np.bool_)
        # Known from the first step on that says so; some environments only say when a task has been solved.
        self._reports_success = np.zeros(num_envs, np.bool_)
        self._last_reward: FloatArray = np.zeros(num_envs, np.float32)

    def state_dict(self) -> dict[str, Any]:
        """Return copies of all totals."""
        return {name: getattr(self, name).copy() for name in _STATE}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what ``state_dict`` returned for as many environments."""
        for name in _STATE:
            setattr(self, name, state[name].copy())

    def restart(self) -> None:
        """Begin episode 0 everywhere."""
        self.episodes[:] = 0
        self._clear(np.ones(len(self.steps), np.bool_))

    def update(self, chunk: RawChunk) -> tuple[FloatArray, tuple[dict[str, float], ...]]:
        """Account for a chunk.

        Args:
            chunk: What happened.

        Returns:
            The rewards to report, float32 [B, C], and the metrics of the episodes that ended, in the order of
            ``chunk.final_ids``.
        """
        rewards = self._shape(chunk)
        counts = chunk.executed.sum(axis=1)
        self.steps += counts
        # The task's own rewards: returns stay comparable if the learner's rewards are shaped.
        self._returns += chunk.rewards.sum(axis=1, dtype=np.float64)
        self._reports_success |= chunk.reports_success
        self._success_once |= chunk.successes.any(axis=1)
        last = np.maximum(counts - 1, 0)
        episodes = tuple(self._metrics(int(row), bool(chunk.successes[row, last[row]])) for row in chunk.final_ids)
        ended = np.zeros(len(self.steps), np.bool_)
        ended[chunk.final_ids] = True
        self.episodes += ended
        self._clear(ended)
        return rewards, episodes

    def _shape(self, chunk: RawChunk) -> FloatArray:
        rewards = chunk.rewards
        if self._use_rel_reward:
            before = np.concatenate([self._last_reward[:, None], rewards[:, :-1]], axis=1)
            counts = chunk.executed.sum(axis=1)
            rows = np.flatnonzero(counts)
            self._last_reward[rows] = rewards[rows, counts[rows] - 1]
            rewards = rewards - before
        shaped: FloatArray = np.where(chunk.executed, rewards * np.float32(self._reward_coef), np.float32(0))
        return shaped

    def _metrics(self, row: int, success_at_end: bool) -> dict[str, float]:
        length = int(self.steps[row])
        total = float(self._returns[row])
        success = {"success_once": float(self._success_once[row]), "success_at_end": float(success_at_end)}
        score = {} if self._reference is None else {"normalized_score": normalized_score(total, self._reference)}
        return {
            **(success if self._reports_success[row] else {}),
            **score,
            "return": total,
            "reward": total / max(length, 1),
            "episode_len": float(length),
        }

    def _clear(self, rows: BoolArray) -> None:
        self.steps[rows] = 0
        self._returns[rows] = 0
        self._success_once[rows] = False
        self._last_reward[rows] = 0


def normalized_score(total: float, reference: tuple[float, float]) -> float:
    """Return a return on the scale on which a random policy has 0 and an expert 100 (Fu et al., 2020).

    Args:
        total: Undiscounted return of an episode.
        reference: Returns of a random and of an expert policy.
    """
    low, high = reference
    return 100.0 * (total - low) / (high - low)
