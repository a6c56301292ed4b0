"""Single environments and the loop that runs a chunk of actions through several of them; imports no torch.

The same loop runs in the caller's process and in the children of the process pool.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt

from rlinf.envs.raw_chunk import ChunkRequest, Frame, RawChunk, RawObservation, RawReset
from rlinf.errors import EnvironmentFailure, RLinfError

SingleStep = tuple[Any, float, bool, bool, bool | None]
"""(simulator's observation, reward, terminated, truncated, success); success is None where the step does not say."""


class SingleEnv(Protocol):
    """One environment, as the chunk loop drives it."""

    action_space: gymnasium.Space[Any]
    observation_space: gymnasium.spaces.Dict

    def reset(self, seed: int) -> Any:
        """Start an episode from the state that ``seed`` names, independent of earlier ones; return the observation."""

    def step(self, action: Any) -> SingleStep:
        """Execute one action."""

    def observe(self, raw: Any) -> dict[str, Any]:
        """Turn a simulator's observation into a row: arrays without a batch dimension, and strings."""

    def render(self) -> Frame | None:
        """Return the present image, uint8 [H, W, 3]."""

    def close(self) -> None:
        """Free what the simulator holds."""


@dataclass(frozen=True, slots=True)
class SingleEnvSpec:
    """How to build the environments of one process; travels to it pickled.

    Attributes:
        env_type: For messages.
        factory: Called as ``factory(render=<bool>, **kwargs)``; returns a ``SingleEnv``.
        kwargs: Its other arguments.
        row_kwargs: Further arguments, those of each environment; None where all are built alike.
        first_env: Global index of the first environment.
        num_envs: Number of environments.
        num_recorded: Environments that render after every step, counted from the first.
    """

    env_type: str
    factory: Callable[..., SingleEnv]
    kwargs: dict[str, Any] = field(default_factory=dict)
    row_kwargs: list[dict[str, Any]] | None = None
    first_env: int = 0
    num_envs: int = 1
    num_recorded: int = 0

    def rows(self, start: int, stop: int) -> SingleEnvSpec:
        """Return the specification of the environments ``start .. stop - 1``."""
        return SingleEnvSpec(
            env_type=self.env_type,
            factory=self.factory,
            kwargs=self.kwargs,
            row_kwargs=None if self.row_kwargs is None else self.row_kwargs[start:stop],
            first_env=self.first_env + start,
            num_envs=stop - start,
            num_recorded=min(max(self.num_recorded - start, 0), stop - start),
        )


@dataclass(frozen=True, slots=True)
class Spaces:
    """What one environment of a kind accepts and shows.

    Attributes:
        action: Space of one action.
        observation: Space of one row of the observation.
    """

    action: gymnasium.Space[Any]
    observation: gymnasium.spaces.Dict


class SingleEnvRows:
    """Several single environments of one process, stepped one after the other, a whole chunk each.

    Args:
        spec: What to build.

    Raises:
        EnvironmentFailure: An environment could not be built; errors of RLinf itself come through unchanged.
    """

    def __init__(self, spec: SingleEnvSpec) -> None:
        self._spec = spec
        self._envs: list[SingleEnv] = []
        for row in range(spec.num_envs):
            own = {} if spec.row_kwargs is None else spec.row_kwargs[row]
            try:
                self._envs.append(spec.factory(render=row < spec.num_recorded, **spec.kwargs, **own))
            except RLinfError:
                raise
            except Exception as error:
                raise self._failure(row, "while it was built", error) from error
        self._obs: list[dict[str, Any]] = [{} for _ in self._envs]
        self._render_error: str | None = None

    @property
    def spaces(self) -> Spaces:
        """Spaces of the first environment; all are alike."""
        return Spaces(self._envs[0].action_space, self._envs[0].observation_space)

    def reset(self, rows: npt.NDArray[np.int64], seeds: npt.NDArray[np.int64]) -> RawReset:
        """Reset some environments; ``seeds[i]`` is for row ``rows[i]``."""
        result = RawReset({})
        for row, seed in zip(rows.tolist(), seeds.tolist(), strict=True):
            self._reset_row(row, seed)
            frame = self._render(row)
            if frame is not None:
                result.frames[row] = frame
        result.obs = stack_rows([self._obs[row] for row in rows.tolist()])
        result.render_error = self._render_error
        return result

    def run_chunk(self, request: ChunkRequest) -> RawChunk:
        """Execute a chunk: a done ends a row's chunk, and starts its next episode where seeds are given."""
        chunk = RawChunk.empty(request.shape)
        ended: list[int] = []
        final_obs: list[dict[str, Any]] = []
        for row in np.flatnonzero(request.active).tolist():
            if not self._run_row(row, request, chunk):
                continue
            ended.append(row)
            final_obs.append(self._obs[row])
            if request.next_seeds is not None:
                self._reset_row(row, int(request.next_seeds[row]))
                frame = self._render(row)
                if frame is not None:
                    chunk.reset_frames[row] = frame
        chunk.obs = stack_rows(self._obs)
        chunk.final_ids = np.array(ended, dtype=np.int64)
        chunk.final_obs = stack_rows(final_obs) if final_obs else None
        chunk.render_error = self._render_error
        return chunk

    def close(self) -> None:
        """Close every environment."""
        for env in self._envs:
            env.close()
        self._envs = []

    def _run_row(self, row: int, request: ChunkRequest, chunk: RawChunk) -> bool:
        env = self._envs[row]
        rule = request.rule
        num_steps = int(request.steps[row])
        ended = False
        raw: Any = None
        for column, action in enumerate(request.actions[row]):
            num_steps += 1
            try:
                raw, reward, terminated, truncated, success = env.step(action)
            except Exception as error:
                raise self._failure(row, f"at step {num_steps} of its episode", error) from error
            terminated, truncated = rule.ends(terminated, truncated, num_steps)
            chunk.executed[row, column] = True
            chunk.rewards[row, column] = reward
            chunk.successes[row, column] = bool(success)
            chunk.reports_success = chunk.reports_success or success is not None
            if request.observes:
                chunk.observations.setdefault(row, []).append(env.observe(raw))
            if row < self._spec.num_recorded:
                frame = self._render(row)
                if frame is not None:
                    chunk.frames.setdefault(row, []).append(frame)
            if terminated or truncated:
                chunk.terminations[row, column] = terminated
                chunk.truncations[row, column] = truncated
                ended = True
                break
        self._obs[row] = env.observe(raw)
        return ended

    def _reset_row(self, row: int, seed: int) -> None:
        try:
            self._obs[row] = self._envs[row].observe(self._envs[row].reset(seed))
        except Exception as error:
            raise self._failure(row, f"while it was reset with seed {seed}", error) from error

    def _render(self, row: int) -> Frame | None:
        if row >= self._spec.num_recorded or self._render_error is not None:
            return None
        try:
            frame = self._envs[row].render()
        except Exception as error:  # noqa: BLE001 - drivers raise anything; training goes on without the video
            self._render_error = f"{type(error).__name__}: {error}"
            return None
        if frame is None:
            self._render_error = "the environment renders no image (render() returned None)"
        return frame

    def _failure(self, row: int, when: str, error: Exception) -> EnvironmentFailure:
        return EnvironmentFailure(
            f"Environment {self._spec.first_env + row} (env_type={self._spec.env_type}) raised "
            f"{type(error).__name__} {when}: {error}"
        )


def stack_rows(rows: list[dict[str, Any]]) -> RawObservation:
    """Join single rows to a batch: arrays are stacked, strings become lists."""
    first = rows[0]
    return {
        key: [row[key] for row in rows] if isinstance(value, str) else np.stack([row[key] for row in rows])
        for key, value in first.items()
    }
