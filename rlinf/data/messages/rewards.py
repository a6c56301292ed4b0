"""The request for the rewards of a chunk."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rlinf.data.messages.batch_record import BatchRecord
from rlinf.data.messages.embodied import ChunkStep, Observation


@dataclass(frozen=True, slots=True)
class RewardRequest(BatchRecord):
    """A chunk of actions of ``B`` environments and its result.

    Attributes:
        obs: Observations after the chunk; where it ended an episode, those in which it ended. ``B`` rows.
        actions: float32 [B, C, A], or int64 [B, C] if discrete; as sent to the environment.
        rewards: float32 [B, C]; the environment's own, 0 where an action was not executed.
        executed: bool [B, C].
        terminations: bool [B, C]; true at the action that ended the episode by its own rules.
        truncations: bool [B, C]; true at the action after which the episode was cut off.
        env_ids: int64 [B]; numbers of the environments, unique within the run.
        starts: bool [B]; whether the chunk is the first of an episode.
    """

    obs: Observation
    actions: torch.Tensor
    rewards: torch.Tensor
    executed: torch.Tensor
    terminations: torch.Tensor
    truncations: torch.Tensor
    env_ids: torch.Tensor
    starts: torch.Tensor

    @staticmethod
    def from_step(
        step: ChunkStep, actions: torch.Tensor, *, first_env: int = 0, starts: torch.Tensor | None = None
    ) -> RewardRequest:
        """Return the request about the result of ``actions``, in memory that later steps do not change.

        Args:
            step: The result.
            actions: [B, C, A] or [B, C].
            first_env: Number of the first environment; the others follow.
            starts: bool [B]; None if all environments were just reset.
        """
        return RewardRequest(
            obs=_closing(step),
            actions=actions,
            rewards=step.rewards,
            executed=step.executed,
            terminations=step.terminations,
            truncations=step.truncations,
            env_ids=torch.arange(first_env, first_env + len(step.executed)),
            starts=torch.ones(len(step.executed), dtype=torch.bool) if starts is None else starts,
        )


def _closing(step: ChunkStep) -> Observation:
    """Return the observations after a chunk: an episode's last one rather than the first of the next."""
    if step.final_ids is None or step.final_obs is None:
        return step.obs
    closing: Observation = {}
    for key, value in step.obs.items():
        last = step.final_obs[key]
        if isinstance(value, torch.Tensor):
            closing[key] = value.index_copy(0, step.final_ids.to(value.device), last)
        else:
            rows = dict(zip(step.final_ids.tolist(), last, strict=True))
            closing[key] = [rows.get(row, entry) for row, entry in enumerate(value)]
    return closing
