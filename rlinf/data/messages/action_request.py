"""Messages of the decoupled mode: the request that an env rank sends to an idle rollout rank, and its response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from rlinf.data.messages.batch_record import BatchRecord
from rlinf.data.messages.embodied import ChunkStep, Observation, PolicyOutput


@dataclass(frozen=True, slots=True)
class ActionRequest:
    """Request of one pipeline stage of one env rank for actions.

    Attributes:
        env_rank: The env rank that sends it.
        stage: Its pipeline stage.
        mode: Whether it plays for training or for an evaluation.
        step: Step of the run; 0 in evaluation.
        epoch: Rollout epoch within the step.
        row: Chunk steps that the rollout epoch has behind it.
        is_last: Whether the rollout epoch is over, so that no actions are wanted.
        wants_values: Whether final observations, and the last one, are to be valued.
        chunk: The result of the chunk before, and the observations to act on.
        acted_on: The observations that the chunk before was chosen for, where an operator intervened or an
            expert said what it would have done; else None.
    """

    env_rank: int
    stage: int
    mode: Literal["train", "eval"]
    step: int
    epoch: int
    row: int
    is_last: bool
    wants_values: bool
    chunk: ChunkStep
    acted_on: Observation | None = None


@dataclass(frozen=True, slots=True)
class PolicyFeedback(BatchRecord):
    """The result of a chunk of ``B`` environments, as the policy sees it.

    Attributes:
        final_rows: int64 [F]; environments whose episode ended in a state whose value is needed; None if none did.
        final_values: float32 [F, V]; the values of those states.
        next_inputs: Tensors [B, ...]; what the policy saw after the chunk, the last state where an episode ended. None
            where the loss does not need it.
        executed_actions: As ``action`` of the policy's report: the actions that were executed, where an operator
            intervened; else None.
        labels: As ``action`` of the policy's report: what an expert in the environments would have done; None where
            none is.
    """

    final_rows: torch.Tensor | None = None
    final_values: torch.Tensor | None = None
    next_inputs: dict[str, torch.Tensor] | None = None
    executed_actions: torch.Tensor | None = None
    labels: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class ActionResponse:
    """Response of a rollout rank, on the host.

    Attributes:
        actions: [B, C, A], or int64 [B, C] if discrete; None if none were wanted.
        output: The policy's report on them; None in evaluation.
        version: Weight version that chose them.
        feedback: On the chunk before; None for the first request of a rollout epoch, and in evaluation.
        last_values: float32 [B, V] of the observation after the last chunk, where it was to be valued.
    """

    actions: torch.Tensor | None
    output: PolicyOutput | None
    version: int
    feedback: PolicyFeedback | None
    last_values: torch.Tensor | None
