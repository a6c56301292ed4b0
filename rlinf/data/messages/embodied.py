"""Messages of embodied RL: what an environment reports, what a policy answers, and the trajectories learned from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import torch

from rlinf.data.messages.batch_record import BatchRecord, concat_records, concat_rows, select_rows

Observation: TypeAlias = dict[str, Any]
"""One batch of observations: tensors with a leading ``B`` (``states`` float32 [B, S], images uint8 [B, H, W, 3]) and
lists of ``B`` strings (``task_descriptions``)."""
PREVIOUS_ACTIONS = "previous_actions"
"""Where an observation has the actions that were planned before, float32 [B, H - C, A]: those that are executed while
the next chunk is computed, and those that it replaces. Evaluations with ``inference_delay`` alone have them."""
CROPPED = "is_cropped"
"""Where an observation says that its images are crops of random place, bool [B], so that models do not crop them to the
middle. Frames of data sets alone have it."""


@dataclass(frozen=True, slots=True)
class ChunkStep(BatchRecord):
    """What ``B`` environments report after executing a chunk of actions.

    Attributes:
        obs: Observations to act on next; of a new episode where one was started.
        rewards: float32 [B, C]; 0 where the action was not executed.
        terminations: bool [B, C]; true at the action that ended the episode by its own rules.
        truncations: bool [B, C]; true at the action after which the episode was cut off.
        executed: bool [B, C]; false behind a done, and throughout for an environment at rest.
        final_obs: Observations in which episodes ended in this chunk, one row for each entry of ``final_ids``; None if
            none ended.
        final_ids: int64 [F]; rows (0..B-1) whose episode ended in this chunk; None if none ended.
        episodes: Metrics of finished episodes, one mapping per entry of ``final_ids``: ``success_once``,
            ``success_at_end``, ``return``, ``reward``, ``episode_len``.
        intervene_action: float32 [B, C, A]; the executed actions, in environments that allow interventions; else
            None.
        intervene_flag: bool [B, C]; true where an operator intervened; None as above.
        expert_action: float32 [B, C, A]; what an expert would have done in place of each action, in the state that the
            actions before it led to; None where no expert is in the environments.
    """

    obs: Observation
    rewards: torch.Tensor
    terminations: torch.Tensor
    truncations: torch.Tensor
    executed: torch.Tensor
    final_obs: Observation | None = None
    final_ids: torch.Tensor | None = None
    episodes: tuple[dict[str, float], ...] = ()
    intervene_action: torch.Tensor | None = None
    intervene_flag: torch.Tensor | None = None
    expert_action: torch.Tensor | None = None

    @property
    def has_interventions(self) -> bool:
        """Whether an operator intervened."""
        return self.intervene_flag is not None and bool(self.intervene_flag.any())

    @property
    def has_foreign_actions(self) -> bool:
        """Whether there are actions that the policy has not chosen, and learns from."""
        return self.expert_action is not None or self.has_interventions

    def executed_actions(self, actions: torch.Tensor) -> torch.Tensor:
        """Return the executed actions, given those that the policy chose."""
        return actions if self.intervene_action is None else self.intervene_action

    def rows(self, start: int, stop: int) -> ChunkStep:
        """Return environments ``start`` to ``stop`` (exclusive) as a message of their own, without their episodes."""
        rows = self._without_ends().select(slice(start, stop))
        if self.final_ids is None:
            return rows
        inside = ((self.final_ids >= start) & (self.final_ids < stop)).nonzero().flatten()
        if not len(inside):
            return rows
        return replace(rows, final_obs=select_rows(self.final_obs, inside), final_ids=self.final_ids[inside] - start)

    @classmethod
    def concat(cls, parts: Sequence[ChunkStep]) -> ChunkStep:
        """Join messages of different environments in the given order; episode metrics stay with the environments."""
        if len(parts) == 1:
            return parts[0]
        joined = concat_records([part._without_ends() for part in parts])
        first, final_ids = 0, []
        for part in parts:
            final_ids.append(None if part.final_ids is None else part.final_ids + first)
            first += len(part.rewards)
        final_obs = concat_rows([part.final_obs for part in parts])
        return replace(joined, final_obs=final_obs, final_ids=concat_rows(final_ids), episodes=())

    @classmethod
    def join_actions(cls, parts: Sequence[ChunkStep]) -> ChunkStep:
        """Join what the same environments report after consecutive actions; an episode's end ends a row's actions."""
        if len(parts) == 1:
            return parts[0]
        ends = [part for part in parts if part.final_ids is not None]
        final_ids, final_obs = (concat_rows([getattr(p, name) for p in ends]) for name in ("final_ids", "final_obs"))
        episodes = [episode for part in ends for episode in part.episodes]
        if final_ids is not None:
            order = torch.argsort(final_ids)
            final_ids, final_obs = final_ids[order], select_rows(final_obs, order)
            episodes = [episodes[index] for index in order.tolist()] if episodes else []
        outcomes = ("rewards", "terminations", "truncations", "executed")
        columns = (*outcomes, "intervene_action", "intervene_flag", "expert_action")
        joined: dict[str, Any] = {name: concat_rows([getattr(part, name) for part in parts], 1) for name in columns}
        return replace(parts[-1], final_obs=final_obs, final_ids=final_ids, episodes=tuple(episodes), **joined)

    def _without_ends(self) -> ChunkStep:
        """Return the same without what there is for single environments alone."""
        return replace(self, final_obs=None, final_ids=None, episodes=())


@dataclass(frozen=True, slots=True)
class PolicyOutput(BatchRecord):
    """What a policy reports besides its actions.

    Attributes:
        logprobs: float32 [B, C, A]; log-probability of each action dimension under the distribution sampled from
            (discrete actions: A = 1). Of a steered flow [B, 1, D], of the noise in ``forward_inputs["action"]``.
        values: float32 [B, V] where the model has a value head; V is 1, or C for action-level values.
        forward_inputs: Tensors with leading B from which ``default_forward`` recomputes the same logprobs.
    """

    logprobs: torch.Tensor
    values: torch.Tensor | None
    forward_inputs: dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Trajectory(BatchRecord):
    """One rollout epoch of ``B`` environments, time-major.

    Attributes:
        forward_inputs: Tensors [T, B, ...]: what the policy saw and did.
        logprobs: float32 [T, B, C, A] under the behaviour policy.
        values: float32 [T + 1, B, V]; the last row belongs to the observation after the last chunk. None without a
            value head.
        rewards: float32 [T, B, C].
        terminations: bool [T, B, C].
        truncations: bool [T, B, C].
        executed: bool [T, B, C].
        final_values: float32 [T, B, V]; value of the state in which an episode ended within the chunk, where it was
            needed (on truncation, or always), else 0. None without a value head.
        group_ids: int64 [B]; equal for trajectories that are compared with each other.
        env_ids: int64 [B]; ``epoch * total_num_envs + global environment index``: unique within a step, and the order
            in which samples are numbered, on any number of ranks.
        versions: int64 [T, B]; weight version that chose each chunk.
        next_inputs: Tensors [T, B, ...]: what the policy saw after each chunk; where an episode ended, its last state.
            None where the loss does not need it.
        intervened: bool [T, B, C]; actions of an operator who intervened, which ``forward_inputs`` hold instead of the
            policy's. None where the environments allow no interventions.
    """

    batch_axis: ClassVar[int] = 1
    batch_axes: ClassVar[Mapping[str, int]] = {"group_ids": 0, "env_ids": 0}

    forward_inputs: dict[str, torch.Tensor]
    logprobs: torch.Tensor
    values: torch.Tensor | None
    rewards: torch.Tensor
    terminations: torch.Tensor
    truncations: torch.Tensor
    executed: torch.Tensor
    final_values: torch.Tensor | None
    group_ids: torch.Tensor
    env_ids: torch.Tensor
    versions: torch.Tensor
    next_inputs: dict[str, torch.Tensor] | None = None
    intervened: torch.Tensor | None = None

    def envs(self, start: int, stop: int) -> Trajectory:
        """Return environments ``start`` to ``stop`` (exclusive) as a trajectory of their own."""
        return self.select(slice(start, stop))

    def sorted(self) -> Trajectory:
        """Return the same trajectories ordered by ``env_ids``."""
        return self.select(torch.argsort(self.env_ids))

    @property
    def num_steps(self) -> int:
        """Chunk steps (``T``)."""
        return self.rewards.shape[0]

    @property
    def num_envs(self) -> int:
        """Environments (``B``)."""
        return self.rewards.shape[1]


@dataclass(frozen=True, slots=True)
class FrameWindow:
    """What was seen, or imagined, at ``T`` successive steps of ``B`` episodes.

    Attributes:
        images: uint8 [B, T, H, W, 3].
        states: float32 [B, T, S]; ``S`` may be 0.
    """

    images: torch.Tensor
    states: torch.Tensor

    def __getitem__(self, steps: slice) -> FrameWindow:
        """Return some of the steps."""
        return FrameWindow(self.images[:, steps], self.states[:, steps])

    def to(self, device: torch.device | str) -> FrameWindow:
        """Return them on a device."""
        return FrameWindow(self.images.to(device), self.states.to(device))
