"""Messages of embodied RL: what an environment reports, what a policy answers, and the trajectories learned from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

Observation: TypeAlias = dict[str, Any]
"""One batch of observations: tensors with a leading ``B`` (``states`` float32 [B, S], images uint8 [B, H, W, 3]) and
lists of ``B`` strings (``task_descriptions``)."""


@dataclass(frozen=True, slots=True)
class ChunkStep:
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
        intervene_action: float32 [B, C, A]; what was executed, where somebody may act in place of the policy. None
            where nobody may.
        intervene_flag: bool [B, C]; true where somebody did. None where nobody may.
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

    @property
    def has_interventions(self) -> bool:
        """Whether somebody acted in place of the policy."""
        return self.intervene_flag is not None and bool(self.intervene_flag.any())

    def taken(self, actions: torch.Tensor) -> torch.Tensor:
        """Return what was executed, given what the policy wanted to do."""
        return actions if self.intervene_action is None else self.intervene_action

    def rows(self, start: int, stop: int) -> ChunkStep:
        """Return environments ``start`` to ``stop`` (exclusive) as a message of their own."""
        final_obs, final_ids = None, None
        if self.final_ids is not None and self.final_obs is not None:
            inside = ((self.final_ids >= start) & (self.final_ids < stop)).nonzero().flatten()
            if len(inside):
                final_ids = self.final_ids[inside] - start
                final_obs = _index_rows(self.final_obs, inside)
        return ChunkStep(
            obs=_index_rows(self.obs, slice(start, stop)),
            rewards=self.rewards[start:stop],
            terminations=self.terminations[start:stop],
            truncations=self.truncations[start:stop],
            executed=self.executed[start:stop],
            final_obs=final_obs,
            final_ids=final_ids,
            intervene_action=None if self.intervene_action is None else self.intervene_action[start:stop],
            intervene_flag=None if self.intervene_flag is None else self.intervene_flag[start:stop],
        )

    @staticmethod
    def concat(parts: list[ChunkStep]) -> ChunkStep:
        """Join messages of different environments in the given order; episode metrics stay with the environments."""
        if len(parts) == 1:
            return parts[0]
        offsets = [0]
        for part in parts:
            offsets.append(offsets[-1] + part.rewards.shape[0])
        ended = [
            (p.final_obs, p.final_ids + o)
            for p, o in zip(parts, offsets, strict=False)
            if p.final_ids is not None and p.final_obs is not None
        ]
        return ChunkStep(
            obs=_concat_rows([p.obs for p in parts]),
            rewards=torch.cat([p.rewards for p in parts]),
            terminations=torch.cat([p.terminations for p in parts]),
            truncations=torch.cat([p.truncations for p in parts]),
            executed=torch.cat([p.executed for p in parts]),
            final_obs=_concat_rows([obs for obs, _ in ended]) if ended else None,
            final_ids=torch.cat([ids for _, ids in ended]) if ended else None,
            intervene_action=_concat_optional([p.intervene_action for p in parts], dim=0),
            intervene_flag=_concat_optional([p.intervene_flag for p in parts], dim=0),
        )


@dataclass(frozen=True, slots=True)
class PolicyOutput:
    """What a policy reports besides its actions.

    Attributes:
        logprobs: float32 [B, C, A]; log-probability of each action dimension under the distribution sampled from
            (discrete actions: A = 1).
        values: float32 [B, V] where the model has a value head; V is 1, or C for action-level values.
        forward_inputs: Tensors with leading B from which ``default_forward`` recomputes the same logprobs.
    """

    logprobs: torch.Tensor
    values: torch.Tensor | None
    forward_inputs: dict[str, torch.Tensor]

    def cpu(self) -> PolicyOutput:
        """Return the same report on the host."""
        return PolicyOutput(
            logprobs=self.logprobs.cpu(),
            values=None if self.values is None else self.values.cpu(),
            forward_inputs={name: tensor.cpu() for name, tensor in self.forward_inputs.items()},
        )


@dataclass(frozen=True, slots=True)
class Trajectory:
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
            asked for (on truncation, or always), else 0. None without a value head.
        group_ids: int64 [B]; equal for trajectories that are compared with each other.
        env_ids: int64 [B]; ``epoch * total_num_envs + global environment index``: unique within a step, and the order
            in which samples are numbered, whatever ranks they are on.
        versions: int64 [T, B]; weight version that chose each chunk.
        next_inputs: Tensors [T, B, ...]: what the policy saw after each chunk; where an episode ended, its last state.
            None where the loss does not need it.
        intervened: bool [T, B, C]; actions of somebody who acted in place of the policy, which ``forward_inputs`` hold
            instead of the policy's. None where nobody may.
    """

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
        return self._map_envs(lambda x: x[:, start:stop], lambda x: x[start:stop])

    def sorted(self) -> Trajectory:
        """Return the same trajectories ordered by ``env_ids``."""
        order = torch.argsort(self.env_ids)
        return self._map_envs(lambda x: x[:, order], lambda x: x[order])

    @staticmethod
    def concat(parts: list[Trajectory]) -> Trajectory:
        """Join trajectories of equal length along the environments."""
        first = parts[0]
        return Trajectory(
            forward_inputs={k: torch.cat([p.forward_inputs[k] for p in parts], 1) for k in first.forward_inputs},
            logprobs=torch.cat([p.logprobs for p in parts], 1),
            values=_concat_optional([p.values for p in parts]),
            rewards=torch.cat([p.rewards for p in parts], 1),
            terminations=torch.cat([p.terminations for p in parts], 1),
            truncations=torch.cat([p.truncations for p in parts], 1),
            executed=torch.cat([p.executed for p in parts], 1),
            final_values=_concat_optional([p.final_values for p in parts]),
            group_ids=torch.cat([p.group_ids for p in parts]),
            env_ids=torch.cat([p.env_ids for p in parts]),
            versions=torch.cat([p.versions for p in parts], 1),
            next_inputs=_concat_next_inputs([p.next_inputs for p in parts]),
            intervened=_concat_optional([p.intervened for p in parts]),
        )

    def _map_envs(
        self, cut: Callable[[torch.Tensor], torch.Tensor], cut_ids: Callable[[torch.Tensor], torch.Tensor]
    ) -> Trajectory:
        return Trajectory(
            forward_inputs={k: cut(v) for k, v in self.forward_inputs.items()},
            logprobs=cut(self.logprobs),
            values=None if self.values is None else cut(self.values),
            rewards=cut(self.rewards),
            terminations=cut(self.terminations),
            truncations=cut(self.truncations),
            executed=cut(self.executed),
            final_values=None if self.final_values is None else cut(self.final_values),
            group_ids=cut_ids(self.group_ids),
            env_ids=cut_ids(self.env_ids),
            versions=cut(self.versions),
            next_inputs=None if self.next_inputs is None else {k: cut(v) for k, v in self.next_inputs.items()},
            intervened=None if self.intervened is None else cut(self.intervened),
        )

    @property
    def num_steps(self) -> int:
        """Chunk steps (``T``)."""
        return self.rewards.shape[0]

    @property
    def num_envs(self) -> int:
        """Environments (``B``)."""
        return self.rewards.shape[1]


def _index_rows(obs: Observation, rows: slice | torch.Tensor) -> Observation:
    if isinstance(rows, slice):
        return {key: value[rows] for key, value in obs.items()}
    return {
        key: value[rows] if isinstance(value, torch.Tensor) else [value[i] for i in rows.tolist()]
        for key, value in obs.items()
    }


def _concat_rows(parts: list[Observation]) -> Observation:
    return {
        key: torch.cat([p[key] for p in parts])
        if isinstance(value, torch.Tensor)
        else [item for p in parts for item in p[key]]
        for key, value in parts[0].items()
    }


def _concat_optional(parts: list[torch.Tensor | None], dim: int = 1) -> torch.Tensor | None:
    present = [part for part in parts if part is not None]
    return torch.cat(present, dim) if present else None


def _concat_next_inputs(parts: list[dict[str, torch.Tensor] | None]) -> dict[str, torch.Tensor] | None:
    present = [part for part in parts if part is not None]
    return {name: torch.cat([part[name] for part in present], 1) for name in present[0]} if present else None
