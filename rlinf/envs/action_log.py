"""The actions that led to the present state of environments, from which that state can be reached again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rlinf.envs.raw_chunk import BoolArray, IntArray


@dataclass(frozen=True, slots=True)
class ReplaySegment:
    """Consecutive actions of the episodes that have begun by then.

    Attributes:
        begins: int64 [F], ascending; rows whose episode begins with the segment.
        actions: [B, N, ...]; the next actions of the active rows, and valid actions for the others.
        active: bool [B]; rows whose episode has begun.
        steps: int64 [B]; steps replayed before.
    """

    begins: IntArray
    actions: npt.NDArray[Any]
    active: BoolArray
    steps: IntArray


class ActionLog:
    """Start state and executed actions of the present episode of each of ``B`` environments.

    Attributes:
        seeds: int64 [B]; reset-state ids that the episodes started from.
        lengths: int64 [B]; actions executed since.

    Args:
        num_envs: ``B``.
    """

    def __init__(self, num_envs: int) -> None:
        self.seeds: IntArray = np.zeros(num_envs, np.int64)
        self.lengths: IntArray = np.zeros(num_envs, np.int64)
        self._actions: npt.NDArray[Any] = np.zeros((num_envs, 0))

    def begin(self, rows: IntArray, seeds: IntArray) -> None:
        """Begin episodes.

        Args:
            rows: int64 [F].
            seeds: int64 [F]; reset-state ids.
        """
        self.seeds[rows] = seeds
        self.lengths[rows] = 0

    def add(self, actions: npt.NDArray[Any], executed: BoolArray) -> None:
        """Append a chunk.

        Args:
            actions: [B, C, ...], as policies say them.
            executed: bool [B, C]; true for the leading actions of a row, then false.
        """
        self._reserve(int(self.lengths.max()) + actions.shape[1], actions)
        # What was not executed lies behind the length, where the next chunk overwrites it.
        columns = self.lengths[:, None] + np.arange(actions.shape[1])
        self._actions[np.arange(len(self.lengths))[:, None], columns] = actions
        self.lengths += executed.sum(axis=1)

    def state_dict(self) -> dict[str, Any]:
        """Return copies of ``seeds`` and ``lengths``, and the actions of all rows one after the other."""
        used = self._used()
        return {
            "seeds": self.seeds.copy(),
            "lengths": self.lengths.copy(),
            "actions": self._actions[:, : used.shape[1]][used],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` returned for as many environments."""
        self.seeds, self.lengths = state["seeds"].copy(), state["lengths"].copy()
        used, actions = self._used(), state["actions"]
        self._actions = np.zeros((*used.shape, *actions.shape[1:]), actions.dtype)
        self._actions[used] = actions

    def segments(self) -> Iterator[ReplaySegment]:
        """Yield the actions in such an order that all rows come to their present state at the same time.

        Longer episodes begin earlier, so that a simulator which cannot freeze single rows never steps one beyond its
        present state.
        """
        longest = int(self.lengths.max())
        starts = longest - self.lengths
        bounds = np.unique(np.append(starts, longest)).tolist()
        for start, stop in zip(bounds, [*bounds[1:], longest], strict=True):
            active = starts <= start
            steps = np.where(active, start - starts, 0)
            # Rows that wait are given the actions of one that does not.
            source = np.where(active, np.arange(len(starts)), int(np.argmax(active)))
            columns = steps[source][:, None] + np.arange(stop - start)
            yield ReplaySegment(np.flatnonzero(starts == start), self._actions[source[:, None], columns], active, steps)

    def _used(self) -> BoolArray:
        used: BoolArray = np.arange(int(self.lengths.max())) < self.lengths[:, None]
        return used

    def _reserve(self, length: int, actions: npt.NDArray[Any]) -> None:
        """Make room for ``length`` actions in each row, at least doubling the room."""
        have = self._actions
        if have.shape[1] >= length and have.dtype == actions.dtype and have.shape[2:] == actions.shape[2:]:
            return
        grown = np.zeros((len(have), max(length, 2 * have.shape[1]), *actions.shape[2:]), actions.dtype)
        if self.lengths.any():
            grown[:, : have.shape[1]] = have
        self._actions = grown
