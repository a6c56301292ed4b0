"""The base of all environments: everything that does not depend on the simulator, implemented once."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, ClassVar, Literal, TypeVar

import gymnasium
import numpy as np
import numpy.typing as npt
import torch

from rlinf.config.schema.env import EnvConfig
from rlinf.data.messages.embodied import ChunkStep, Observation
from rlinf.envs.action_conventions import convention_of
from rlinf.envs.action_log import ActionLog, ReplaySegment
from rlinf.envs.actions import ActionFormat
from rlinf.envs.episode_collector import EpisodeCollector
from rlinf.envs.episodes import EpisodeTracker
from rlinf.envs.raw_chunk import (
    BoolArray,
    ChunkRequest,
    EpisodeRule,
    Frame,
    IntArray,
    RawChunk,
    RawObservation,
    RawReset,
    changed_rows,
    concatenate_rows,
    put_rows,
    take_rows,
)
from rlinf.envs.reset_states import ResetStates
from rlinf.envs.versions import simulator_versions
from rlinf.envs.video import VideoRecorder
from rlinf.envs.wrappers import build_wrappers
from rlinf.envs.wrappers.base import EnvWrapper
from rlinf.errors import ConfigError, EnvironmentFailure, EpisodeRestoreError, RLinfError

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a simulator reports after one action of each of ``B`` environments.

    Attributes:
        obs: Observations, ``B`` rows, in memory that later steps do not change; or a function that returns them, called
            before the next step and only where they are looked at, so that no image is rendered in vain.
        rewards: float [B].
        terminations: bool [B]; the episode ended by the task's own rules.
        truncations: bool [B]; it was cut off by the simulator.
        infos: ``success`` bool [B], where the task has a notion of it.
    """

    obs: RawObservation | Callable[[], RawObservation]
    rewards: Any
    terminations: Any
    truncations: Any
    infos: Mapping[str, Any] = field(default_factory=dict)


class VectorEnv(abc.ABC):
    """``B`` environments stepped together by chunks of ``C`` actions.

    A concrete environment sets ``observation_space`` (of one row) and ``action_space`` (of one action) before anything
    is stepped, and implements ``reset_idx`` and ``step``; optionally ``render_idx``, ``prepare_actions``, ``_offload``,
    ``_onload``, ``_close``, ``_get_state`` and ``_set_state``. The rules, the same for all of them:

    - A done in mid-chunk stops the environment's chunk: its remaining actions are not executed, have reward 0 and
      ``executed`` false. The state in which the episode ended is in ``final_obs``.
    - With ``auto_reset`` the next observation begins a new episode; without it the environment rests until ``reset``.
    - With ``ignore_terminations`` only truncation ends an episode. An action that both terminates and truncates counts
      as termination.
    - Start states depend on (seed, epoch, group, episode) only, never on how environments are cut over workers, and
      nothing else is random here: a resumed run sees what an undisturbed one would.
    - An episode depends on its start state and on the actions executed in it, on nothing else. So a checkpoint holds
      these, and a resumed run replays them (see ``restored_by``).

    Args:
        cfg: The environment's configuration.
        num_envs: ``B``.
        first_env: Index of the first of them among all ``cfg.total_num_envs``.

    Raises:
        ConfigError: The environments do not lie within ``total_num_envs``.
    """

    observation_space: gymnasium.spaces.Dict
    action_space: gymnasium.Space[Any]
    hardware_type: ClassVar[str | None] = None
    """Kind of declared hardware that it drives; it is then also built with ``hardware``, a list of descriptions."""
    restored_by: ClassVar[Literal["replay", "state", "nothing"]] = "replay"
    """How a resumed run comes back to episodes that had not ended: their actions are executed again (``replay``), the
    simulator hands out and takes its state (``state``: ``_get_state`` and ``_set_state``), or not at all (``nothing``):
    new episodes begin. Environments that drive hardware are never restored."""

    def __init__(self, cfg: EnvConfig, *, num_envs: int, first_env: int = 0) -> None:
        if num_envs < 1 or first_env < 0 or first_env + num_envs > cfg.total_num_envs:
            raise ConfigError(
                f"env.*.total_num_envs={cfg.total_num_envs} does not hold the environments {first_env} to "
                f"{first_env + num_envs - 1} that are requested (first_env={first_env}, num_envs={num_envs})."
            )
        self.cfg = cfg
        self.num_envs = num_envs
        self.first_env = first_env
        self._reset_states = ResetStates(cfg, num_envs=num_envs, first_env=first_env)
        self._tracker = EpisodeTracker(
            num_envs,
            reward_coef=cfg.reward_coef,
            use_rel_reward=cfg.use_rel_reward,
            reference_returns=cfg.reference_returns,
        )
        self._rule = EpisodeRule(cfg.max_episode_steps, cfg.ignore_terminations)
        self._wrappers = build_wrappers(cfg, num_envs=num_envs)
        self._recorder = VideoRecorder(cfg.video_cfg, num_envs=num_envs, first_env=first_env)
        self._collector = EpisodeCollector(cfg, num_envs=num_envs, first_env=first_env)
        self._epoch = 0
        self._active: BoolArray = np.zeros(num_envs, np.bool_)
        self._obs: RawObservation | None = None
        self._shown: Observation = {}
        self._convention = convention_of(cfg)
        self._log: ActionLog | None = ActionLog(num_envs) if self._is_restored_by("replay") else None
        self._request: ChunkRequest | None = None
        self._said: Any = None
        self._waiting: list[torch.Tensor] = []
        self._looks_at_every_action = any(wrapper.looks_at_every_action for wrapper in self._wrappers)
        self._action_format: ActionFormat | None = None
        self._offloaded = False
        self._closed = False

    @classmethod
    def class_for(cls, cfg: EnvConfig) -> type[VectorEnv]:
        """Return the class to build of a configuration whose ``env_type`` names this one.

        Args:
            cfg: The environment's configuration.
        """
        del cfg
        return cls

    # -- what a concrete environment implements ------------------------------------------------------------------------

    @abc.abstractmethod
    def reset_idx(self, env_ids: IntArray, seeds: IntArray) -> RawObservation:
        """Start new episodes in some environments and leave the others as they are.

        Args:
            env_ids: int64 [F], ascending rows (0..B-1).
            seeds: int64 [F]; names of the start states. The episode may depend on nothing else.

        Returns:
            Observations, ``F`` rows in the order of ``env_ids``.
        """

    @abc.abstractmethod
    def step(self, actions: Any, active: BoolArray) -> StepResult:
        """Execute one action in each active environment.

        Args:
            actions: [B, ...], one column of what ``prepare_actions`` returned, in the simulator's convention.
            active: bool [B]. A simulator that cannot freeze single environments may step all: what it reports for
                the others is discarded.
        """

    def render_idx(self, env_ids: list[int]) -> list[Frame] | None:
        """Return an image, uint8 [H, W, 3], of each requested environment; None where there are none."""
        return None

    def prepare_actions(self, actions: torch.Tensor) -> Any:
        """Check the policy's actions, which are recorded and replayed as they are returned here.

        The default checks their shape, brings them to the CPU, clips them to a Box's bounds and gives them its shape.
        Where ``cfg.action_convention`` is another one, they are turned into the simulator's after that.

        Args:
            actions: [B, C, A], or [B, C] integers for a discrete space.

        Returns:
            A numpy array [B, C, ...].

        Raises:
            EnvironmentFailure: The shape is wrong.
            NumericalError: An action is not finite.
        """
        if self._action_format is None:
            self._action_format = ActionFormat(self.policy_space, num_envs=self.num_envs, env_type=self.cfg.env_type)
        return self._action_format(actions)

    def _offload(self) -> None:  # noqa: B027 - optional
        """Free device memory; called only where ``cfg.supports_offload`` is true."""

    def _onload(self) -> None:  # noqa: B027 - optional
        """Undo ``_offload``."""

    def _close(self) -> None:  # noqa: B027 - optional
        """Free what the simulator holds; called once."""

    def _get_state(self) -> Mapping[str, Any]:
        """Return the simulator's state of all environments; called only where ``restored_by`` is ``state``.

        Returns:
            Numbers, strings, arrays, tensors, and mappings and lists of these.
        """
        raise NotImplementedError

    def _set_state(self, state: Mapping[str, Any]) -> RawObservation:
        """Take over what ``_get_state`` returned; called only where ``restored_by`` is ``state``.

        Returns:
            Observations, ``B`` rows.
        """
        raise NotImplementedError

    def versions(self) -> dict[str, str]:
        """Return what results depend on besides ``cfg``: versions of the simulator, its assets, and what renders."""
        return simulator_versions(self.cfg)

    # -- what users call -----------------------------------------------------------------------------------------------

    @property
    def policy_space(self) -> gymnasium.Space[Any]:
        """Space of one action as policies say it, by ``cfg.action_convention``; ``action_space`` is the simulator's.

        Raises:
            ConfigError: The simulator has other actions than the convention is of.
        """
        return self._convention.policy_space(self.action_space, env_type=self.cfg.env_type)

    @property
    def action_dim(self) -> int:
        """Numbers per action of a policy (``A``); 1 for a discrete space."""
        space = self.policy_space
        return 1 if isinstance(space, gymnasium.spaces.Discrete) else int(np.prod(space.shape or ()))

    @property
    def shown_space(self) -> gymnasium.spaces.Dict:
        """Space of one row of the observations, as the wrappers leave them."""
        space = self.observation_space
        for wrapper in self._wrappers:
            space = wrapper.space(space)
        return space

    @property
    def group_ids(self) -> torch.Tensor:
        """int64 [B]; equal for environments of one group in the present epoch, different from all others of the run."""
        return torch.from_numpy(self._reset_states.group_ids(self._epoch))

    @property
    def episode_numbers(self) -> torch.Tensor:
        """int64 [B]; number of each environment's episode within the rollout epoch, from 0."""
        return torch.from_numpy(self._tracker.episodes.copy())

    @property
    def episode_steps(self) -> torch.Tensor:
        """int64 [B]; steps taken in the present episodes."""
        return torch.from_numpy(self._tracker.steps.copy())

    @property
    def reset_state_ids(self) -> torch.Tensor:
        """int64 [B]; the reset-state ids (seeds) that the present episodes started from."""
        return torch.from_numpy(self._reset_states.ids(self._epoch, self._tracker.episodes))

    def start_of(self, row: int, number: int) -> int:
        """Return the reset-state id that an episode of the present rollout epoch starts from.

        Args:
            row: Its environment (0..B-1).
            number: Its number within the rollout epoch, from 0.
        """
        return int(self._reset_states.ids(self._epoch, np.full(self.num_envs, number))[row])

    def reset(self, epoch: int) -> Observation:
        """Start a rollout epoch: a first episode in every environment.

        Args:
            epoch: Number of the rollout epoch over the whole run; the only state that start states depend on.

        Returns:
            Observations, ``B`` rows.

        Raises:
            EnvironmentFailure: The simulator raised, or a process of its ended.
        """
        self._require_open()
        if self._request is not None:
            self.finish_chunk_step()  # its answers are on their way, and must not be taken for the reset's
        self.onload()
        self._epoch = epoch
        self._tracker.restart()
        rows, seeds = np.arange(self.num_envs), self._reset_states.ids(epoch, self._tracker.episodes)
        if self._log is not None:
            self._log.begin(rows, seeds)
        result = self._reset_rows(rows, seeds)
        self._active = np.ones(self.num_envs, np.bool_)
        self._obs = result.obs
        self._recorder.start_epoch(epoch, result)
        self._collector.start_epoch(result.obs)
        self._shown = self._begin(result.obs, rows)
        return self._shown

    def restart(self, env_ids: IntArray, seeds: IntArray) -> Observation:
        """Start new episodes in some environments outside the order of a rollout, to look at their start states.

        Args:
            env_ids: int64 [F], ascending rows (0..B-1).
            seeds: int64 [F]; names of the start states.

        Returns:
            Observations, ``F`` rows.
        """
        return self._begin(self.reset_idx(env_ids, seeds), env_ids)

    def chunk_step(self, actions: torch.Tensor) -> ChunkStep:
        """Execute a chunk of actions in every environment.

        Args:
            actions: [B, C, A], or [B, C] integers for a discrete space.

        Returns:
            What happened, by the rules of this class.

        Raises:
            EnvironmentFailure: ``reset`` has not been called, the shape is wrong, the simulator raised or one of its
                processes ended.
            NumericalError: An action is not finite.
        """
        self.start_chunk_step(actions)
        return self.finish_chunk_step()

    def start_chunk_step(self, actions: torch.Tensor) -> None:
        """First half of ``chunk_step``: environments in processes of their own begin to work, and the call returns."""
        self._require_open()
        if self._obs is None or self._request is not None:
            raise EnvironmentFailure(
                f"env_type={self.cfg.env_type}: "
                + ("chunk_step before reset(epoch)." if self._obs is None else "the previous chunk was not finished.")
            )
        first, *self._waiting = torch.split(actions, 1, 1) if self._looks_at_every_action else [actions]
        self._start(first, self._active.copy(), resting=None)

    def _start(self, actions: torch.Tensor, active: BoolArray, *, resting: torch.Tensor | None) -> None:
        """Let the active environments begin to execute actions [B, C, A]."""
        for wrapper in reversed(self._wrappers):
            wrapper.is_within_chunk, wrapper.resting = bool(self._waiting), resting
            actions = wrapper.actions(actions)
        said = self.prepare_actions(actions)
        request = ChunkRequest(
            actions=self._convention.to_simulator(said),
            active=active,
            steps=self._tracker.steps.copy(),
            next_seeds=self._reset_states.ids(self._epoch, self._tracker.episodes + 1) if self.cfg.auto_reset else None,
            rule=self._rule,
            observes=self._collector.enabled,
        )
        self._send_chunk(request)
        self._request, self._said = request, said

    def finish_chunk_step(self) -> ChunkStep:
        """Second half of ``chunk_step``: wait for the environments and report."""
        if self._request is None:
            raise EnvironmentFailure(f"env_type={self.cfg.env_type}: finish_chunk_step without start_chunk_step.")
        goes_on = self._request.active.copy()
        steps = [self._finish(self._request)]
        while self._waiting:
            final_ids, actions = steps[-1].final_ids, self._waiting.pop(0)
            if final_ids is not None:
                goes_on[final_ids.numpy()] = False
            self._start(actions, goes_on.copy(), resting=torch.from_numpy(~goes_on))
            steps.append(self._finish(self._request))
        return ChunkStep.join_actions(steps)

    def _finish(self, request: ChunkRequest) -> ChunkStep:
        said, self._request, self._said = self._said, None, None
        chunk = self._recv_chunk(request)
        self._obs = chunk.obs
        rewards, episodes = self._tracker.update(chunk)
        if not self.cfg.auto_reset:
            self._active[chunk.final_ids] = False
        self._recorder.add_chunk(chunk, rewards)
        flags = next((wrapper.flags for wrapper in self._wrappers if wrapper.flags is not None), None)
        self._collector.add_chunk(said, chunk, None if flags is None else flags[:, 0].numpy())
        self._remember(request, said, chunk)
        step = ChunkStep(
            obs=to_tensors(chunk.obs),
            rewards=torch.from_numpy(rewards),
            terminations=torch.from_numpy(chunk.terminations),
            truncations=torch.from_numpy(chunk.truncations),
            executed=torch.from_numpy(chunk.executed),
            final_obs=None if chunk.final_obs is None else to_tensors(chunk.final_obs),
            final_ids=None if chunk.final_obs is None else torch.from_numpy(chunk.final_ids),
            episodes=episodes,
        )
        for wrapper in self._wrappers:
            step = wrapper.step_result(step)
        self._shown = step.obs
        return step

    def state_dict(self) -> dict[str, Any] | None:
        """Return the state between two chunks; later steps do not change it.

        Returns:
            Numbers, strings, arrays, tensors, and mappings and lists of these, for ``load_state_dict``. None where
            episodes cannot be continued (``restored_by``), or none has begun.
        """
        if self._obs is None or self._request is not None or not self.is_restorable:
            return None
        return {
            "epoch": self._epoch,
            "active": self._active.copy(),
            "tracker": self._tracker.state_dict(),
            "wrappers": [wrapper.state_dict() for wrapper in self._wrappers],
            "episodes": self._get_state() if self._log is None else self._log.state_dict(),
            "obs": self._obs,
            # Without wrappers it is the same.
            "shown": self._shown if self._wrappers else None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> Observation:
        """Continue the episodes of which ``state_dict`` was made, by environments built alike.

        Actions that are replayed are in no metrics; they are recorded again as far as videos are.

        Args:
            state: What ``state_dict`` returned.

        Returns:
            What was shown last, ``B`` rows; the policy acts on it next.

        Raises:
            EpisodeRestoreError: The simulator did not come to the saved observations; call ``reset``.
            EnvironmentFailure: The simulator raised, or a process of its ended.
        """
        self._require_open()
        self.onload()
        self._epoch = state["epoch"]
        self._active = state["active"].copy()
        self._tracker.load_state_dict(state["tracker"])
        numbers = self._tracker.episodes - ~self._active  # the episode after which an environment rests
        if self._log is None:
            obs = self._call("while its state was set", lambda: self._set_state(state["episodes"]))
            result = RawReset(obs, *self._frames(self._recorder.rows))
            self._recorder.start_epoch(self._epoch, result, numbers=numbers, is_midway=True)
            self._collector.start_epoch(obs)
        else:
            self._log.load_state_dict(state["episodes"])
            obs = self._replay(self._log, numbers)
        self._require_restored(changed_rows(state["obs"], obs))
        self._obs = obs
        self._tracker.load_state_dict(state["tracker"])
        for wrapper, saved in zip(self._wrappers, state["wrappers"], strict=True):
            wrapper.load_state_dict(saved)
        self._shown = to_tensors(self._obs) if state["shown"] is None else state["shown"]
        return self._shown

    @property
    def is_restorable(self) -> bool:
        """Whether ``state_dict`` can be made."""
        return self._log is not None or self._is_restored_by("state")

    def offload(self) -> None:
        """Free the simulator's device memory until ``onload`` or ``reset``, where ``cfg.enable_offload`` says so."""
        if self.cfg.enable_offload and not self._offloaded:
            self._offload()
            self._offloaded = True

    def onload(self) -> None:
        """Undo ``offload``."""
        if self._offloaded:
            self._onload()
            self._offloaded = False

    def close(self) -> None:
        """Write the videos out and free the simulator; harmless when called again."""
        if not self._closed:
            self._closed = True
            self._recorder.close()
            self._collector.abort()
            for wrapper in self._wrappers:
                wrapper.close()
            self._close()

    def finish_collection(self) -> None:
        """Publish the episodes collected so far, where ``cfg.data_collection`` asks for them; no more are collected."""
        self._collector.close()

    def add_wrapper(self, wrapper: EnvWrapper) -> None:
        """Put a wrapper around those of ``cfg.wrappers``, before the first ``reset``."""
        self._wrappers.append(wrapper)
        self._looks_at_every_action |= wrapper.looks_at_every_action

    def begin_step(self, step: int) -> None:
        """Play for a training step from now on; where episodes are collected, those that end are of that step."""
        self._collector.begin_step(step)
        for wrapper in self._wrappers:
            wrapper.begin_step(step)

    def publish_collection(self) -> None:
        """Publish the episodes of the training step."""
        self._collector.end_step()

    def rewind_collection(self, step: int) -> None:
        """Forget the episodes that were collected after a training step."""
        self._collector.go_back(step)

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- coming back to a saved state ----------------------------------------------------------------------------------

    def _is_restored_by(self, way: str) -> bool:
        return self.restored_by == way and self.hardware_type is None

    def _remember(self, request: ChunkRequest, said: Any, chunk: RawChunk) -> None:
        """Keep the executed actions of the episodes that go on or rest."""
        if self._log is None:
            return
        if not isinstance(said, np.ndarray):
            self._log = None  # such actions cannot be saved
            return
        self._log.add(said, chunk.executed)
        if request.next_seeds is not None:
            self._log.begin(chunk.final_ids, request.next_seeds[chunk.final_ids])

    def _replay(self, log: ActionLog, numbers: IntArray) -> RawObservation:
        """Execute the logged actions, of episodes with these numbers; return the observations that they lead to."""
        result = self._reset_rows(np.arange(self.num_envs), log.seeds)
        self._obs = result.obs
        self._recorder.start_epoch(self._epoch, result, numbers=numbers)
        self._collector.start_epoch(result.obs)
        self._tracker.restart()
        for segment in log.segments():
            if segment.steps.any() and len(segment.begins):
                # A simulator that cannot freeze single rows has moved these meanwhile.
                again = self._reset_rows(segment.begins, log.seeds[segment.begins])
                self._obs = put_rows(self._obs, segment.begins, again.obs)
            if segment.actions.shape[1]:
                self._obs = self._replay_segment(segment)
        obs, self._obs = self._obs, None
        return obs

    def _replay_segment(self, segment: ReplaySegment) -> RawObservation:
        request = ChunkRequest(
            actions=self._convention.to_simulator(segment.actions),
            active=segment.active,
            steps=segment.steps,
            next_seeds=None,
            rule=self._rule,
            observes=self._collector.enabled,
        )
        self._send_chunk(request)
        chunk = self._recv_chunk(request)
        rewards, _ = self._tracker.update(chunk)
        self._recorder.add_chunk(chunk, rewards)
        self._collector.add_chunk(segment.actions, chunk)
        ended = (chunk.terminations | chunk.truncations).any(axis=1)
        strayed = segment.active & (~chunk.executed.all(axis=1) | (ended & self._active))
        self._require_restored(np.flatnonzero(strayed))
        return chunk.obs

    def _require_restored(self, strayed: IntArray) -> None:
        if not len(strayed):
            return
        self._obs = None
        remedy = "" if self._log is None else "; an episode may depend on nothing but its seed and the executed actions"
        raise EpisodeRestoreError(
            f"env_type={self.cfg.env_type}: environments {_ranges(strayed + self.first_env)} do not come back to the "
            f"saved observations{remedy}."
        )

    # -- stepping a batch; SingleEnvVectorEnv replaces these three -----------------------------------------------------

    def _reset_rows(self, rows: IntArray, seeds: IntArray) -> RawReset:
        when = f"while it was reset (epoch {self._epoch})"
        result = RawReset(self._call(when, lambda: self.reset_idx(rows, seeds)))
        result.frames, result.render_error = self._frames([row for row in self._recorder.rows if row in rows])
        return result

    def _send_chunk(self, request: ChunkRequest) -> None:  # noqa: B027 - optional
        """Start a chunk; a batch simulator does all its work in ``_recv_chunk``."""

    def _recv_chunk(self, request: ChunkRequest) -> RawChunk:
        assert self._obs is not None
        chunk = RawChunk.empty(request.shape)
        chunk.obs = self._obs
        active = request.active.copy()
        finals: list[tuple[IntArray, RawObservation]] = []
        for column in range(request.shape[1]):
            if not active.any():
                break
            ended = self._step_column(request, chunk, active, column)
            if ended.any():
                rows = np.flatnonzero(ended)
                finals.append((rows, take_rows(chunk.obs, rows)))
                active = active & ~ended
        if finals:
            self._finish_episodes(request, chunk, finals)
        return chunk

    def _step_column(self, request: ChunkRequest, chunk: RawChunk, active: BoolArray, column: int) -> BoolArray:
        """Execute one action of each active row, and return the rows whose episode it ended."""
        steps = request.steps + column + 1
        result = self._call(
            f"at step {int(steps[active].max())} of an episode",
            lambda: self.step(request.actions[:, column], active.copy()),
        )
        terminated, truncated = self._rule.ends(
            active & to_numpy(result.terminations, np.bool_), active & to_numpy(result.truncations, np.bool_), steps
        )
        chunk.executed[:, column] = active
        chunk.rewards[:, column] = np.where(active, to_numpy(result.rewards, np.float32), 0)
        chunk.reports_success = chunk.reports_success or "success" in result.infos
        chunk.successes[:, column] = active & to_numpy(result.infos.get("success", False), np.bool_)
        chunk.terminations[:, column] = active & terminated
        chunk.truncations[:, column] = active & truncated
        ended: BoolArray = active & (terminated | truncated)
        obs = result.obs
        if not callable(obs):
            self._note_obs(obs, chunk, active)
        elif request.observes or ended.any() or column == request.shape[1] - 1:
            self._note_obs(self._call("while it was looked at", obs), chunk, active)
        frames, error = self._frames([row for row in self._recorder.rows if active[row]])
        for row, frame in frames.items():
            chunk.frames.setdefault(row, []).append(frame)
        chunk.render_error = chunk.render_error or error
        for row in np.flatnonzero(active).tolist() if request.observes else ():
            seen = {key: value[0] for key, value in take_rows(chunk.obs, np.array([row])).items()}
            chunk.observations.setdefault(row, []).append(seen)
        return ended

    def _note_obs(self, obs: RawObservation, chunk: RawChunk, active: BoolArray) -> None:
        """Take what is seen after an action; rows at rest show what they did."""
        resting = np.flatnonzero(~active)
        chunk.obs = put_rows(obs, resting, take_rows(chunk.obs, resting)) if len(resting) else obs

    def _finish_episodes(
        self, request: ChunkRequest, chunk: RawChunk, finals: list[tuple[IntArray, RawObservation]]
    ) -> None:
        rows = np.concatenate([rows for rows, _ in finals])
        order = np.argsort(rows)
        chunk.final_ids = rows[order]
        chunk.final_obs = take_rows(concatenate_rows([obs for _, obs in finals]), order)
        seeds = request.next_seeds
        if seeds is None:
            return
        ids = chunk.final_ids
        chunk.obs = put_rows(
            chunk.obs, ids, self._call("while it was reset after an episode", lambda: self.reset_idx(ids, seeds[ids]))
        )
        chunk.reset_frames, error = self._frames([row for row in self._recorder.rows if row in ids])
        chunk.render_error = chunk.render_error or error

    def _frames(self, rows: list[int]) -> tuple[dict[int, Frame], str | None]:
        if not rows or not self._recorder.enabled:
            return {}, None
        try:
            frames = self.render_idx(rows)
        except Exception as error:  # noqa: BLE001 - drivers raise anything; training goes on without the video
            return {}, f"{type(error).__name__}: {error}"
        if frames is None:
            return {}, "the environment renders no image (render_idx() returned None)"
        return dict(zip(rows, frames, strict=True)), None

    def _call(self, when: str, call: Callable[[], R]) -> R:
        try:
            return call()
        except RLinfError:
            raise
        except Exception as error:
            last = self.first_env + self.num_envs - 1
            raise EnvironmentFailure(
                f"One of the environments {self.first_env}-{last} (env_type={self.cfg.env_type}) raised "
                f"{type(error).__name__} {when}: {error}"
            ) from error

    def _begin(self, obs: RawObservation, rows: IntArray) -> Observation:
        shown = to_tensors(obs)
        for wrapper in self._wrappers:
            shown = wrapper.reset(shown, torch.from_numpy(rows))
        return shown

    def _require_open(self) -> None:
        if self._closed:
            raise EnvironmentFailure(f"env_type={self.cfg.env_type}: the environments are closed.")


def _ranges(numbers: IntArray) -> str:
    """Return ascending numbers as text: ``0-3, 7``."""
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def to_numpy(value: Any, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """Return an array on the CPU, from an array, a tensor on any device or a number."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    return np.asarray(value, dtype=dtype)


def to_tensors(obs: Mapping[str, Any]) -> Observation:
    """Return the observation with arrays as tensors that share their memory; lists and tensors stay as they are."""
    return {key: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for key, value in obs.items()}
