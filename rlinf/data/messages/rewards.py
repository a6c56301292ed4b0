"""The message that rewards are asked with."""

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
    """

    obs: Observation
    actions: torch.Tensor
    rewards: torch.Tensor
    executed: torch.Tensor
    terminations: torch.Tensor
    truncations: torch.Tensor

    @staticmethod
    def from_outcome(outcome: ChunkStep, actions: torch.Tensor) -> RewardRequest:
        """Return the request about the result of ``actions``, in memory that later steps do not change."""
        return RewardRequest(
            obs=_closing(outcome),
            actions=actions,
            rewards=outcome.rewards,
            executed=outcome.executed,
            terminations=outcome.terminations,
            truncations=outcome.truncations,
        )


def _closing(outcome: ChunkStep) -> Observation:
    """Return the observations after a chunk: an episode's last one rather than the first of the next."""
    if outcome.final_ids is None or outcome.final_obs is None:
        return outcome.obs
    closing: Observation = {}
    for key, value in outcome.obs.items():
        last = outcome.final_obs[key]
        if isinstance(value, torch.Tensor):
            closing[key] = value.index_copy(0, outcome.final_ids.to(value.device), last)
        else:
            rows = dict(zip(outcome.final_ids.tolist(), last, strict=True))
            closing[key] = [rows.get(row, entry) for row, entry in enumerate(value)]
    return closing
