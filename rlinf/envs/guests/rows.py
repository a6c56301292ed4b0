"""The chunk loop of a guest: what ``rlinf.envs.single_env`` does in the host's interpreter, on batches of rows.

An adapter's module has one of two functions, called with the recipe's ``init_params``:

``make(render, **init_params)`` returns one environment with ``action_low`` and ``action_high`` (arrays of ``A``
numbers), ``reset(seed) -> row``, ``step(action) -> (row, reward, terminated, truncated, success)``, ``render() ->
uint8 [H, W, 3] or None`` and ``close()``. Where ``make`` has an argument ``group``, it is the number of the
environment's group among all of the recipe. A row is a dict of arrays and strings; ``success`` is None where the
simulator does not say. In place of a row ``step`` may return a function that returns one: it is called before the
environment goes on, and only where the row is looked at, which saves images within chunks. An environment may have
``begin_chunk()``, which is called before the first action of each chunk.

``make_batch(num_envs, first_env, render, **init_params)`` returns all of them in one simulator: ``reset(rows, seeds)
-> rows`` of those, ``step(actions [B, A], active [B]) -> (B rows, rewards [B], terminated [B], truncated [B],
successes [B] or None)``, in which what is said of inactive rows is ignored, and ``render(row)``. In place of ``step``
it may have ``run_chunk(actions [B, C, A], active [B])``, which returns a list of ``C`` such results; those after a done
are ignored, too. ``init_params`` then has ``group_size`` and ``max_episode_steps`` as well.

``PACKAGES = ("mujoco", ...)`` in the module, a constant, names the installed packages whose versions results depend on.
A batch may have ``versions()``, which returns strings by name of what results depend on besides.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    # Guests may run on Python 3.8, where these cannot be evaluated.
    from collections.abc import Callable

    Row = dict[str, Any]
    Array = np.ndarray[Any, Any]


class Singles:
    """Single environments as a batch.

    Args:
        make: See above.
        num_envs: How many.
        first_env: Index of the first of them among all of the recipe.
        num_recorded: Environments that render, counted from the first.
        init_params: Arguments of ``make``.
        group_size: Neighbouring environments that are a group.
    """

    def __init__(
        self,
        make: Callable[..., Any],
        *,
        num_envs: int,
        first_env: int,
        num_recorded: int,
        init_params: dict[str, Any],
        group_size: int = 1,
    ) -> None:
        self.first_env = first_env
        groups = [{"group": (first_env + row) // group_size} for row in range(num_envs)]
        own = groups if "group" in inspect.signature(make).parameters else [{}] * num_envs
        self._envs = [make(render=row < num_recorded, **init_params, **own[row]) for row in range(num_envs)]
        self._rows: list[Row] = [{} for _ in self._envs]
        self.action_low, self.action_high = self._envs[0].action_low, self._envs[0].action_high

    def reset(self, rows: list[int], seeds: list[int]) -> list[Row]:
        """Start episodes in some environments."""
        for index, row in enumerate(rows):
            self._rows[row] = self._envs[row].reset(seeds[index])
        return [self._rows[row] for row in rows]

    def begin_chunk(self) -> None:
        """Announce a chunk to the environments that want to know."""
        for env in self._envs:
            if hasattr(env, "begin_chunk"):
                env.begin_chunk()

    def step(self, actions: Array, active: Array) -> tuple[list[Row], Array, Array, Array, Array | None]:
        """Execute one action in each active environment."""
        rewards = np.zeros(len(self._envs), np.float32)
        flags = np.zeros((3, len(self._envs)), np.bool_)
        reports_success = False
        for row in np.flatnonzero(active).tolist():
            self._rows[row], reward, terminated, truncated, success = self._envs[row].step(actions[row])
            rewards[row] = reward
            flags[:, row] = terminated, truncated, bool(success)
            reports_success = reports_success or success is not None
        return list(self._rows), rewards, flags[0], flags[1], flags[2] if reports_success else None

    def render(self, row: int) -> Array | None:
        """Return the present image of an environment."""
        frame: Array | None = self._envs[row].render()
        return frame

    def close(self) -> None:
        """Close every environment."""
        for env in self._envs:
            env.close()


class GuestRows:
    """Executes chunks as ``SingleEnvRows`` does, answer for answer.

    Args:
        batch: ``Singles``, or what ``make_batch`` returned.
        num_envs: ``B``.
        num_recorded: Environments that render after every step, counted from the first.
    """

    def __init__(self, batch: Any, *, num_envs: int, num_recorded: int) -> None:
        self._batch = batch
        self._num_recorded = num_recorded
        self._rows: list[Row] = [{} for _ in range(num_envs)]
        self._render_error: str | None = None
        self.progress = 0
        """Grows with each step and reset, so that another thread can tell work from standstill."""

    def spaces(self) -> dict[str, Any]:
        """Return what an action is and what a row has; starts an episode in each environment."""
        everything = list(range(len(self._rows)))
        row = self._batch.reset(everything, [0] * len(everything))[0]
        shapes = {
            key: "text" if isinstance(value, str) else [np.asarray(value).dtype.str, list(np.shape(value))]
            for key, value in row.items()
        }
        low, high = (np.asarray(bound, np.float32) for bound in (self._batch.action_low, self._batch.action_high))
        return {"action_low": low, "action_high": high, "observation": shapes}

    def reset(self, rows: Array, seeds: Array) -> dict[str, Any]:
        """Start episodes in some environments, from the states that ``seeds`` name."""
        chosen = rows.tolist()
        frames = self._reset(chosen, seeds.tolist())
        return {
            "obs": stack_rows([self._rows[row] for row in chosen]),
            "frames": frames,
            "render_error": self._render_error,
        }

    def run_chunk(self, request: dict[str, Any]) -> dict[str, Any]:
        """Execute a chunk: a done ends a row's chunk, and starts its next episode where seeds are given."""
        actions = request["actions"]
        shape = actions.shape[:2]
        names = ("terminations", "truncations", "successes", "executed")
        chunk: dict[str, Any] = {name: np.zeros(shape, np.bool_) for name in names}
        chunk.update(
            rewards=np.zeros(shape, np.float32), frames={}, reset_frames={}, observations={}, reports_success=False
        )
        running, steps = request["active"].copy(), request["steps"].copy()
        if hasattr(self._batch, "begin_chunk"):
            self._batch.begin_chunk()
        runs_chunks = hasattr(self._batch, "run_chunk")
        results = self._batch.run_chunk(actions, running) if runs_chunks else None
        for column in range(shape[1]):
            if not running.any():
                break
            steps = steps + running
            self.progress += 1
            result = results[column] if results is not None else self._batch.step(actions[:, column], running)
            self._note_column(column, result, (running, steps), request, chunk)
            running = running & ~(chunk["terminations"][:, column] | chunk["truncations"][:, column])
        self._finish(request, chunk)
        return chunk

    def versions(self) -> dict[str, str]:
        """Return what the simulator says that results depend on."""
        return dict(self._batch.versions()) if hasattr(self._batch, "versions") else {}

    def close(self) -> None:
        """Close the simulator."""
        self._batch.close()

    def _note_column(
        self, column: int, result: Any, state: tuple[Array, Array], request: dict[str, Any], chunk: dict[str, Any]
    ) -> None:
        """Note what one action did in each row that goes on; ``state`` says which do, and their episodes' steps."""
        rows, rewards, terminated, truncated, successes = result
        running, steps = state
        max_steps, ignores_terminations = request["rule"]
        terminated = terminated & (not ignores_terminations)
        truncated = (truncated | (steps >= max_steps)) & ~terminated
        chunk["executed"][:, column] = running
        chunk["rewards"][running, column] = np.asarray(rewards)[running]
        chunk["terminations"][:, column] = terminated & running
        chunk["truncations"][:, column] = truncated & running
        if successes is not None:
            chunk["reports_success"] = True
            chunk["successes"][:, column] = np.asarray(successes) & running
        for row in np.flatnonzero(running).tolist():
            self._rows[row] = rows[row]
            if request["observes"]:
                rows[row] = self._rows[row] = _observed(rows[row])
                chunk["observations"].setdefault(str(row), []).append(rows[row])
            if row < self._num_recorded and (frame := self._render(row)) is not None:
                chunk["frames"].setdefault(str(row), []).append(frame)

    def _finish(self, request: dict[str, Any], chunk: dict[str, Any]) -> None:
        """Start the following episodes, and note what is seen."""
        self._rows = [_observed(row) for row in self._rows]
        ended = np.flatnonzero((chunk["terminations"] | chunk["truncations"]).any(axis=1)).tolist()
        chunk["final_ids"] = np.array(ended, np.int64)
        chunk["final_obs"] = stack_rows([self._rows[row] for row in ended]) if ended else None
        if ended and request["next_seeds"] is not None:
            chunk["reset_frames"] = self._reset(ended, request["next_seeds"][ended].tolist())
        chunk["obs"] = stack_rows(self._rows)
        chunk["render_error"] = self._render_error

    def _reset(self, rows: list[int], seeds: list[int]) -> dict[str, Array]:
        self.progress += 1
        seen = self._batch.reset(rows, seeds)
        frames = {}
        for index, row in enumerate(rows):
            self._rows[row] = seen[index]
            frame = self._render(row)
            if frame is not None:
                frames[str(row)] = frame
        return frames

    def _render(self, row: int) -> Array | None:
        if row >= self._num_recorded or self._render_error is not None:
            return None
        try:
            frame: Array | None = self._batch.render(row)
        except Exception as error:  # noqa: BLE001 - drivers raise anything; training goes on without the video
            self._render_error = f"{type(error).__name__}: {error}"
            return None
        if frame is None:
            self._render_error = "the environment renders no image (render() returned None)"
        return frame


def _observed(row: Any) -> Row:
    """Return a row, which may be a function that returns it."""
    return row() if callable(row) else row  # type: ignore[no-any-return]


def stack_rows(rows: list[Row]) -> dict[str, Any]:
    """Join rows to a batch: arrays are stacked, strings become lists."""
    return {
        key: [row[key] for row in rows] if isinstance(value, str) else np.stack([np.asarray(row[key]) for row in rows])
        for key, value in rows[0].items()
    }
