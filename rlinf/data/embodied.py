"""Messages of embodied RL: what an environment reports, what a policy answers, and the trajectories learned from."""

from __future__ import annotations

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
        episodes: Finished episodes' metrics, one mapping (``success_once, success_at_end, return, reward, episode_len``)
            per entry of ``final_ids``.
    """

    obs: Observation
    rewards: torch.Tensor
    terminations: torch.Tensor
    truncations: torch.Tensor
    executed: torch.Tensor
    final_obs: Observation | None = None
    final_ids: torch.Tensor | None = None
    episodes: tuple[dict[str, float], ...] = ()


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
        version: Weight version of the behaviour policy.
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
    version: int

    @property
    def num_steps(self) -> int:
        """Chunk steps (``T``)."""
        return self.rewards.shape[0]

    @property
    def num_envs(self) -> int:
        """Environments (``B``)."""
        return self.rewards.shape[1]
