"""Plain-numpy messages of one chunk, shared by environments stepped in process and in the pool; imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

RawObservation: TypeAlias = dict[str, Any]
"""Arrays (or tensors) with leading ``B``, and lists of ``B`` strings."""

BoolArray: TypeAlias = npt.NDArray[np.bool_]
IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.float32]
Frame: TypeAlias = npt.NDArray[np.uint8]

Flag = TypeVar("Flag", bool, BoolArray)


@dataclass(frozen=True, slots=True)
class EpisodeRule:
    """What ends an episode.

    Attributes:
        max_episode_steps: Steps after which an episode that is not done is truncated.
        ignore_terminations: Terminations do not end it.
    """

    max_episode_steps: int
    ignore_terminations: bool

    def ends(self, terminated: Flag, truncated: Flag, steps: Any) -> tuple[Flag, Flag]:
        """Return what counts as (termination, truncation) after ``steps`` steps; at most one of them is true.

        Args:
            terminated: What the simulator says; a bool, or an array.
            truncated: What the simulator says.
            steps: Steps of the episode, the one just taken included.
        """
        terminated = terminated & (not self.ignore_terminations)
        # A state that is terminal has no future to bootstrap from, so termination wins where both hold.
        truncated = (truncated | (steps >= self.max_episode_steps)) & (terminated ^ True)
        return terminated, truncated


@dataclass(frozen=True, slots=True)
class ChunkRequest:
    """One chunk of actions for ``B`` environments.

    Attributes:
        actions: [B, C, ...] ready for the simulator.
        active: bool [B]; false for environments at rest.
        steps: int64 [B]; steps already taken in the present episodes.
        next_seeds: int64 [B]; reset-state ids of the following episodes, None without auto-reset.
        rule: What ends an episode.
        observes: Also report what was seen after each action.
    """

    actions: Any
    active: BoolArray
    steps: IntArray
    next_seeds: IntArray | None
    rule: EpisodeRule
    observes: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """(B, C)."""
        return (self.actions.shape[0], self.actions.shape[1])

    def rows(self, rows: slice) -> ChunkRequest:
        """Return the request of some environments."""
        return ChunkRequest(
            actions=self.actions[rows],
            active=self.active[rows],
            steps=self.steps[rows],
            next_seeds=None if self.next_seeds is None else self.next_seeds[rows],
            rule=self.rule,
            observes=self.observes,
        )


@dataclass(slots=True)
class RawChunk:
    """What ``B`` environments did in a chunk of ``C`` actions, before rewards are shaped.

    Attributes:
        obs: Observations to act on next, ``B`` rows.
        rewards: float32 [B, C]; the simulator's, 0 where not executed.
        terminations: bool [B, C].
        truncations: bool [B, C].
        successes: bool [B, C]; false where not executed.
        executed: bool [B, C]; true for the leading actions of a row, then false.
        final_ids: int64 [F], ascending; rows whose episode ended.
        final_obs: Observations in which they ended, ``F`` rows; None if F is 0.
        frames: Rendered images per recorded row, one for each executed action.
        reset_frames: Rendered image of the episode newly started, per recorded row.
        render_error: Why rendering failed, if it did.
        observations: Where requested, the observation after each executed action, by row.
        reports_success: Whether any environment said if its task is solved; ``successes`` mean nothing without.
    """

    obs: RawObservation
    rewards: FloatArray
    terminations: BoolArray
    truncations: BoolArray
    successes: BoolArray
    executed: BoolArray
    final_ids: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    final_obs: RawObservation | None = None
    frames: dict[int, list[Frame]] = field(default_factory=dict)
    reset_frames: dict[int, Frame] = field(default_factory=dict)
    render_error: str | None = None
    observations: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    reports_success: bool = False

    @classmethod
    def empty(cls, shape: tuple[int, int]) -> RawChunk:
        """Return a chunk in which nothing was executed yet."""
        return cls(
            obs={},
            rewards=np.zeros(shape, np.float32),
            terminations=np.zeros(shape, np.bool_),
            truncations=np.zeros(shape, np.bool_),
            successes=np.zeros(shape, np.bool_),
            executed=np.zeros(shape, np.bool_),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[tuple[int, RawChunk]]) -> RawChunk:
        """Join the chunks of consecutive environments; each comes with its first row."""
        if len(parts) == 1:
            return parts[0][1]
        chunks = [chunk for _, chunk in parts]
        finals = [chunk.final_obs for chunk in chunks if chunk.final_obs is not None]
        return cls(
            obs=concatenate_rows([chunk.obs for chunk in chunks]),
            rewards=np.concatenate([chunk.rewards for chunk in chunks]),
            terminations=np.concatenate([chunk.terminations for chunk in chunks]),
            truncations=np.concatenate([chunk.truncations for chunk in chunks]),
            successes=np.concatenate([chunk.successes for chunk in chunks]),
            executed=np.concatenate([chunk.executed for chunk in chunks]),
            final_ids=np.concatenate([chunk.final_ids + first for first, chunk in parts]),
            final_obs=concatenate_rows(finals) if finals else None,
            frames={first + row: value for first, chunk in parts for row, value in chunk.frames.items()},
            reset_frames={first + row: value for first, chunk in parts for row, value in chunk.reset_frames.items()},
            render_error=next((chunk.render_error for chunk in chunks if chunk.render_error), None),
            observations={first + row: value for first, chunk in parts for row, value in chunk.observations.items()},
            reports_success=any(chunk.reports_success for chunk in chunks),
        )


@dataclass(slots=True)
class RawReset:
    """Observations of environments just reset (rows in the requested order), and images of the recorded ones."""

    obs: RawObservation
    frames: dict[int, Frame] = field(default_factory=dict)
    render_error: str | None = None


def take_rows(obs: Mapping[str, Any], rows: IntArray) -> RawObservation:
    """Return a copy of some rows of an observation."""
    return {key: [value[row] for row in rows] if isinstance(value, list) else value[rows] for key, value in obs.items()}


def put_rows(obs: Mapping[str, Any], rows: IntArray, new: Mapping[str, Any]) -> RawObservation:
    """Return a copy of an observation in which some rows are replaced by those of ``new``."""
    return {key: _put(value, rows, new[key]) for key, value in obs.items()}


def _put(value: Any, rows: IntArray, new: Any) -> Any:
    if isinstance(value, list):
        result = list(value)
        for row, entry in zip(rows, new, strict=True):
            result[row] = entry
        return result
    copied = value.copy() if isinstance(value, np.ndarray) else value.clone()
    copied[rows] = new
    return copied


def changed_rows(first: Mapping[str, Any], second: Mapping[str, Any]) -> IntArray:
    """Return the rows, ascending, in which two observations of equally many rows are not the same bit for bit."""
    if first.keys() != second.keys():
        return np.arange(len(next(iter(first.values()))))
    changed = [np.zeros(0, np.int64)]
    for key, value in first.items():
        if isinstance(value, list):
            differs = np.array([one != other for one, other in zip(value, second[key], strict=True)])
        else:
            differs = _differs(_on_host(value), _on_host(second[key]))
        changed.append(np.flatnonzero(differs))
    return np.unique(np.concatenate(changed))


def _differs(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> BoolArray:
    if first.shape != second.shape or first.dtype != second.dtype:
        return np.ones(len(first), np.bool_)
    rows = len(first)
    one, other = (np.ascontiguousarray(value).view(np.uint8).reshape(rows, -1) for value in (first, second))
    differs: BoolArray = (one != other).any(axis=1)
    return differs


def _on_host(value: Any) -> npt.NDArray[Any]:
    host: npt.NDArray[Any] = value if isinstance(value, np.ndarray) else value.detach().cpu().numpy()
    return host


def concatenate_rows(parts: Sequence[Mapping[str, Any]]) -> RawObservation:
    """Join observations along their rows."""
    first = parts[0]
    return {key: _concatenate([part[key] for part in parts]) for key in first}


def _concatenate(values: list[Any]) -> Any:
    if len(values) == 1:
        return values[0]
    if isinstance(values[0], list):
        return [entry for value in values for entry in value]
    if isinstance(values[0], np.ndarray):
        return np.concatenate(values)
    import torch

    return torch.cat(values)
