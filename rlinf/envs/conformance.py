"""A checker to run on an environment of one's own: every rule that training relies on, each broken one named."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import fields
from typing import Any

import gymnasium
import numpy as np
import torch

from rlinf.config.metric_names import EPISODE_METRICS, SCORE_METRIC
from rlinf.data.messages.embodied import ChunkStep, Observation
from rlinf.envs.base import VectorEnv
from rlinf.envs.raw_chunk import changed_rows
from rlinf.errors import ConformanceError, EpisodeRestoreError

# Before and after the state is saved; rows are then in different steps of their episodes, and go on past their ends.
_CHUNKS_BEFORE = 5
_CONTINUED_CHUNKS = 10
_SUCCESS = {"success_once", "success_at_end"}
_METRICS = set(EPISODE_METRICS)


def check_vector_env(
    env: VectorEnv,
    *,
    num_action_chunks: int = 3,
    varied_resets: bool = True,
    max_chunks: int = 200,
    rebuild: Callable[[], VectorEnv] | None = None,
) -> None:
    """Check that an environment keeps the rules of ``VectorEnv``.

    Args:
        env: The environment; it is reset several times and left open. Few environments and a low ``max_episode_steps``
            (at most half of ``max_chunks * num_action_chunks``) keep the check short.
        num_action_chunks: Actions per chunk (``C``); chunks of ``C`` and ``C + 1`` actions are executed in turn.
        varied_resets: Whether different seeds have to give different start observations.
        max_chunks: Chunks after which every environment must have finished an episode.
        rebuild: Builds the environment once more, as a resumed run does; saved episodes are then continued by that one
            and otherwise by ``env`` itself.

    Raises:
        ConformanceError: The first rule found broken; its message says what was expected.
    """
    checker = _Checker(env, num_action_chunks)
    checker.check_resets(varied=varied_resets)
    checker.check_partial_reset()
    checker.check_rollout(max_chunks)
    checker.check_repeatability()
    checker.check_restoring(rebuild)


def sample_actions(space: gymnasium.Space[Any], *, num_envs: int, num_chunks: int, seed: int) -> torch.Tensor:
    """Return actions sampled from a space: [B, C, A], or [B, C] for a discrete one.

    Args:
        space: Box or Discrete; unbounded dimensions are sampled from [-1, 1].
        num_envs: ``B``.
        num_chunks: ``C``.
        seed: Seed of the sample.
    """
    generator = np.random.default_rng(seed)
    if isinstance(space, gymnasium.spaces.Discrete):
        return torch.from_numpy(generator.integers(0, int(space.n), (num_envs, num_chunks)))
    assert isinstance(space, gymnasium.spaces.Box)
    low = np.where(np.isfinite(space.low), space.low, -1.0).reshape(-1)
    high = np.where(np.isfinite(space.high), space.high, 1.0).reshape(-1)
    values = generator.uniform(low, high, (num_envs, num_chunks, low.size))
    return torch.from_numpy(values.astype(np.float32))


class _Checker:
    """The rules, one method for each stage."""

    def __init__(self, env: VectorEnv, num_action_chunks: int) -> None:
        self.env = env
        self.num_chunks = num_action_chunks
        self.rule = env.cfg
        self.rows = range(env.num_envs)

    # -- observations ------------------------------------------------------------------------------------------------

    def check_obs(self, obs: Observation, num_rows: int, where: str) -> None:
        """Keys, row counts, dtypes and shapes are those of the observation space."""
        spaces = self.env.shown_space.spaces
        _require("obs-keys", set(obs) == set(spaces), f"{where}: keys {sorted(obs)}, expected {sorted(spaces)}.")
        for key, value in obs.items():
            if isinstance(value, list):
                ok = len(value) == num_rows and all(isinstance(entry, str) for entry in value)
                _require("obs-rows", ok, f"{where}: '{key}' must be a list of {num_rows} strings.")
                continue
            _require("obs-type", isinstance(value, torch.Tensor), f"{where}: '{key}' is a {type(value).__name__}.")
            shape = (num_rows, *(spaces[key].shape or ()))
            got = tuple(value.shape)
            _require("obs-rows", got == shape, f"{where}: '{key}' has shape {got}, expected {shape}.")
            expected = torch.from_numpy(np.zeros(0, spaces[key].dtype)).dtype
            _require("obs-dtype", value.dtype == expected, f"{where}: '{key}' is {value.dtype}, expected {expected}.")

    # -- resets ------------------------------------------------------------------------------------------------------

    def check_resets(self, *, varied: bool) -> None:
        """Start states are named by their seed, shared by a group, and new in a new epoch."""
        first = self.env.reset(0)
        self.check_obs(first, self.env.num_envs, "reset")
        kept = _copy(first)
        self._step(seed=0)
        _require("obs-aliasing", _equal(first, kept), "reset's observation was changed by later steps; return a copy.")
        again = self.env.reset(0)
        _require(
            "reset-determinism",
            _equal(kept, again),
            "reset(0) gave two different observations; the state after a reset may depend on its seed alone.",
        )
        groups = self.env.group_ids.tolist()
        for row in self.rows:
            leader = groups.index(groups[row])
            _require(
                "group-seeding",
                _equal(_row(again, row), _row(again, leader)),
                f"environments {leader} and {row} share a group but not their start state.",
            )
        if varied:
            self._check_seeds_matter()

    def _check_seeds_matter(self) -> None:
        rows = np.arange(self.env.num_envs)
        starts = [_copy(self.env.restart(rows, np.full(self.env.num_envs, seed))) for seed in (1, 2, 3)]
        _require(
            "reset-seed",
            not (_equal(starts[0], starts[1]) and _equal(starts[1], starts[2])),
            "three different seeds gave the same start states (pass varied_resets=False if there is only one).",
        )

    def check_partial_reset(self) -> None:
        """Resetting one environment leaves the others alone, and answers one row."""
        if self.env.num_envs < 2:
            return
        self.env.reset(1)
        undisturbed = _copy(self._step(seed=1, num_chunks=1).obs)
        self.env.reset(1)
        row = self.env.num_envs - 1
        obs = self.env.restart(np.array([row]), np.array([12345]))
        _require(
            "reset-rows", all(len(value) == 1 for value in obs.values()), "reset_idx of one row must return one row."
        )
        disturbed = self._step(seed=1, num_chunks=1).obs
        others = list(range(row))
        same = all(_equal(_row(undisturbed, other), _row(disturbed, other)) for other in others)
        _require("reset-isolation", same, f"reset_idx([{row}]) changed other environments.")

    # -- stepping ----------------------------------------------------------------------------------------------------

    def check_rollout(self, max_chunks: int) -> None:
        """Masks, dones, auto-reset, rest, truncation and episode metrics, over at least one episode of each row."""
        self.env.reset(2)
        books = [_Book() for _ in self.rows]
        # Two lengths in turn, and two episodes: dones then fall within chunks, not only at their end.
        wanted = 2 if self.rule.auto_reset else 1
        for number in range(max_chunks):
            num_chunks = self.num_chunks + number % 2
            step = self._step(seed=100 + number, num_chunks=num_chunks)
            self._check_shapes(step, num_chunks)
            self._check_masks(step, books)
            self._check_episodes(step, books)
            if all(book.episodes >= wanted for book in books):
                break
        if self.rule.auto_reset:
            self._check_next_episode(step)
        unfinished = [row for row in self.rows if not books[row].episodes]
        _require("episode-end", not unfinished, f"rows {unfinished} finished no episode within {max_chunks} chunks.")
        if not self.rule.auto_reset:
            resting = self._step(seed=7)
            _require(
                "rest", not resting.executed.any(), "without auto_reset, actions were executed after the episode's end."
            )
            _require("rest", resting.final_ids is None, "an environment at rest reported the end of an episode.")

    def _check_shapes(self, step: ChunkStep, num_chunks: int) -> None:
        shape = (self.env.num_envs, num_chunks)
        for name in ("rewards", "terminations", "truncations", "executed"):
            value = getattr(step, name)
            dtype = torch.float32 if name == "rewards" else torch.bool
            ok = tuple(value.shape) == shape and value.dtype == dtype
            _require("step-shapes", ok, f"{name} is {value.dtype} {tuple(value.shape)}, expected {dtype} {shape}.")
        self.check_obs(step.obs, self.env.num_envs, "chunk_step")
        _require("rewards-finite", bool(step.rewards.isfinite().all()), "a reward is not finite.")

    def _check_masks(self, step: ChunkStep, books: list[_Book]) -> None:
        executed = step.executed
        prefix = executed.int().cumprod(dim=1).bool()
        _require("executed-prefix", torch.equal(prefix, executed), "an action was executed behind one that was not.")
        _require("masked-rewards", not step.rewards[~executed].any(), "an action that was not executed has a reward.")
        dones = step.terminations | step.truncations
        _require("done-executed", not dones[~executed].any(), "an action that was not executed ended an episode.")
        both = (step.terminations & step.truncations).any()
        _require("done-exclusive", not bool(both), "an action both terminated and truncated; termination wins.")
        if self.rule.ignore_terminations:
            _require("ignore-terminations", not step.terminations.any(), "a termination was reported all the same.")
        behind = executed & (dones.int().cumsum(dim=1) - dones.int() > 0)
        _require("mid-chunk-done", not behind.any(), "actions behind a done in mid-chunk were executed.")
        for row in self.rows:
            alive = not books[row].resting
            stopped = bool(dones[row].any())
            whole = bool(executed[row].all())
            _require("chunk-executed", not alive or stopped or whole, f"row {row} stopped without a done.")
            _require("rest", alive or not executed[row].any(), f"row {row} acted though its episode was over.")

    def _check_episodes(self, step: ChunkStep, books: list[_Book]) -> None:
        dones = (step.terminations | step.truncations).any(dim=1)
        expected = dones.nonzero().flatten().tolist()
        ids = [] if step.final_ids is None else step.final_ids.tolist()
        _require("final-rows", sorted(ids) == expected, f"final_ids {ids}, but rows {expected} ended an episode.")
        _require("final-rows", len(step.episodes) == len(ids), "episodes must have one entry per final_ids entry.")
        if ids:
            _require("final-rows", step.final_obs is not None, "final_obs is missing.")
            self.check_obs(step.final_obs or {}, len(ids), "final_obs")
        for row in self.rows:
            books[row].add(step, row)
        for row, metrics in zip(ids, step.episodes, strict=True):
            self._check_metrics(metrics, books[row], row)
            truncated = bool(step.truncations[row].any())
            length = books[row].steps
            limit = self.rule.max_episode_steps
            _require("truncation", length <= limit, f"row {row}: an episode of {length} steps, the limit is {limit}.")
            _require(
                "truncation",
                length < limit or truncated or bool(step.terminations[row].any()),
                f"row {row}: {length} steps without truncation.",
            )
            books[row].end(resting=not self.rule.auto_reset)
        if ids and self.rule.auto_reset:
            self._check_group_restarts(step, ids)

    def _check_metrics(self, metrics: dict[str, float], book: _Book, row: int) -> None:
        # Tasks without a notion of success have no such metrics.
        expected = _METRICS - (set() if _SUCCESS & set(metrics) else _SUCCESS)
        expected |= set() if self.env.cfg.reference_returns is None else {SCORE_METRIC}
        _require(
            "episode-metrics", set(metrics) == expected, f"row {row}: {sorted(metrics)}, expected {sorted(expected)}."
        )
        cfg = self.env.cfg
        # The return is the task's own; of relative rewards it cannot be computed without the rewards behind them.
        if not cfg.use_rel_reward and cfg.reward_coef != 0:
            total = book.total / cfg.reward_coef
            close = abs(metrics["return"] - total) <= 1e-4 * max(1.0, abs(total))
            _require(
                "episode-metrics", close, f"row {row}: return {metrics['return']}, but the rewards sum to {total}."
            )
        length = metrics["episode_len"]
        _require("episode-metrics", length == book.steps, f"row {row}: episode_len {length}, executed {book.steps}.")
        ok = metrics.get("success_once", 0.0) >= metrics.get("success_at_end", 0.0)
        _require("episode-metrics", ok, f"row {row}: success at the end, but not once.")

    def _check_group_restarts(self, step: ChunkStep, ids: list[int]) -> None:
        """Environments of a group that end their k-th episode in one chunk start the next one from the same state."""
        groups = self.env.group_ids.tolist()
        counts = self.env.episode_numbers.tolist()
        for row in ids:
            for other in ids:
                if groups[row] == groups[other] and counts[row] == counts[other]:
                    same = _equal(_row(step.obs, row), _row(step.obs, other))
                    _require(
                        "auto-reset", same, f"rows {row} and {other} of one group began episode {counts[row]} apart."
                    )

    def _check_next_episode(self, step: ChunkStep) -> None:
        """After a done the next observation is what a reset with the episode's own seed gives."""
        rows = (self.env.episode_numbers > 0).nonzero().flatten().numpy()
        fresh = rows[(self.env.episode_steps[rows] == 0).numpy()]
        if not len(fresh):
            return
        shown = [_copy(_row(step.obs, int(row))) for row in fresh]
        again = _copy(self.env.restart(fresh, self.env.reset_state_ids[fresh].numpy()))
        for number, row in enumerate(fresh.tolist()):
            same = _equal(shown[number], _row(again, number))
            _require("auto-reset", same, f"row {row}: the observation after a done does not begin a new episode.")

    def check_repeatability(self) -> None:
        """The same epoch and actions give the same rewards, dones and observations."""
        runs = []
        for _ in range(2):
            self.env.reset(3)
            runs.append([self._step(seed=number) for number in range(4)])
        for first, second in zip(*runs, strict=True):
            same = (
                torch.equal(first.rewards, second.rewards)
                and torch.equal(first.executed, second.executed)
                and _equal(first.obs, second.obs)
            )
            _require("repeatability", same, "the same epoch and actions gave another outcome the second time.")

    # -- a run that goes on after a kill -----------------------------------------------------------------------------

    def check_restoring(self, rebuild: Callable[[], VectorEnv] | None) -> None:
        """Episodes that are continued from their saved state go on as if they had not been interrupted."""
        if not self.env.is_restorable:
            return
        self.env.reset(4)
        for number in range(_CHUNKS_BEFORE):
            self._step(seed=number, num_chunks=self.num_chunks + number % 2)
        state = self.env.state_dict()
        _require("restore", state is not None, "state_dict() is None; prepare_actions has to return numpy arrays.")
        undisturbed = [self._step(seed=50 + number) for number in range(_CONTINUED_CHUNKS)]
        with ExitStack() as stack:
            other = self.env if rebuild is None else stack.enter_context(rebuild())
            self._check_continued(other, state or {}, undisturbed)

    def _check_continued(self, other: VectorEnv, state: dict[str, Any], undisturbed: list[ChunkStep]) -> None:
        why = (
            "a resumed run executes the actions of an unfinished episode once more, so an episode may depend on "
            "nothing but its seed and these: look for state that reset_idx leaves as it was, for random numbers that "
            "are not seeded by it, for clocks, and for wrappers without state_names. Otherwise implement _get_state "
            'and _set_state and set restored_by = "state", or set restored_by = "nothing".'
        )
        try:
            other.load_state_dict(state)
        except EpisodeRestoreError as error:
            raise ConformanceError("restore", f"{error} In other words: {why}") from error
        for number, expected in enumerate(undisturbed):
            again = self._step(seed=50 + number, env=other)
            names = [field.name for field in fields(ChunkStep) if not _same(expected, again, field.name)]
            _require("restore", not names, f"chunk {number} after a resume differs in {', '.join(names)}: {why}")

    def _step(self, *, seed: int, num_chunks: int | None = None, env: VectorEnv | None = None) -> ChunkStep:
        env = env or self.env
        count = num_chunks or self.num_chunks
        return env.chunk_step(sample_actions(env.policy_space, num_envs=env.num_envs, num_chunks=count, seed=seed))


class _Book:
    """What the checker counted itself for one row."""

    def __init__(self) -> None:
        self.steps = 0
        self.total = 0.0
        self.episodes = 0
        self.resting = False

    def add(self, step: ChunkStep, row: int) -> None:
        self.steps += int(step.executed[row].sum())
        self.total += float(step.rewards[row].double().sum())

    def end(self, *, resting: bool) -> None:
        self.steps, self.total = 0, 0.0
        self.episodes += 1
        self.resting = resting


def _require(rule: str, condition: bool | torch.Tensor, message: str) -> None:
    if not condition:
        raise ConformanceError(rule, message)


def _row(obs: Observation, row: int) -> Observation:
    return {key: value[row : row + 1] for key, value in obs.items()}


def _copy(obs: Observation) -> Observation:
    return {
        key: list(value) if isinstance(value, list) else torch.as_tensor(value).detach().cpu().clone()
        for key, value in obs.items()
    }


def _same(first: ChunkStep, second: ChunkStep, name: str) -> bool:
    """Whether a field of two chunk steps is the same bit for bit."""
    one, other = getattr(first, name), getattr(second, name)
    if isinstance(one, dict) and isinstance(other, dict):
        return not len(changed_rows(_copy(one), _copy(other)))
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    return bool(one == other)


def _equal(first: Observation, second: Observation) -> bool:
    return set(first) == set(second) and all(
        first[key] == second[key]
        if isinstance(first[key], list)
        else torch.equal(torch.as_tensor(first[key]).cpu(), torch.as_tensor(second[key]).cpu())
        for key in first
    )
