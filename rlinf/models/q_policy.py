"""The interface of policies that off-policy losses train: reparameterised actions, critics and target critics."""

from __future__ import annotations

import abc
from dataclasses import dataclass

import torch
from torch import nn

from rlinf.data.messages.embodied import Observation
from rlinf.models.base_policy import BasePolicy


@dataclass(frozen=True, slots=True)
class CriticEvaluation:
    """Predictions of the critics for transitions.

    Attributes:
        q: float32 [N, Q]; values of the executed actions, with gradients to the critics.
        next_q: float32 [N, Q], or [N, M] of the requested members; values of the policy's actions in the next state,
            without gradients.
        next_logprobs: float32 [N]; log-probability of those actions, summed over the chunk. None if there is none.
    """

    q: torch.Tensor
    next_q: torch.Tensor
    next_logprobs: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class ActorEvaluation:
    """Predictions of the critics for the present policy's actions.

    Attributes:
        q: float32 [N, Q]; with gradients through the actions to the policy.
        logprobs: float32 [N]; log-probability of the actions, summed over the chunk, with gradients. None if there is
            none.
        distance: float32 [N]; mean squared distance of the actions from what a frozen model proposes, with gradients.
            None if nothing is proposed.
    """

    q: torch.Tensor
    logprobs: torch.Tensor | None
    distance: torch.Tensor | None = None


class QPolicy(BasePolicy):
    """A policy with an ensemble of ``Q`` critics of chunks of actions, and frozen copies as targets.

    ``forward_inputs`` holds what ``observe`` returns and ``action``. Noise is handed in, so that a result does not
    depend on how a batch is cut.
    """

    critic: nn.Module
    target_critic: nn.Module

    @property
    @abc.abstractmethod
    def action_size(self) -> int:
        """Dimensions of a chunk of actions (``C * A``)."""

    @property
    @abc.abstractmethod
    def noise_shape(self) -> tuple[int, ...]:
        """Shape of the noise from which one chunk of actions is sampled."""

    def targets(self) -> list[tuple[nn.Module, nn.Module]]:
        """Return each target network with the network that it follows."""
        return [(self.target_critic, self.critic)]

    @abc.abstractmethod
    def observe(self, obs: Observation) -> dict[str, torch.Tensor]:
        """Return what the networks see of ``B`` observations: tensors [B, ...]."""

    def augment(self, inputs: dict[str, torch.Tensor], generator: torch.Generator) -> dict[str, torch.Tensor]:
        """Return what is learned from instead of ``inputs`` (as ``observe`` returns): random views of the same states.

        Args:
            inputs: Tensors [N, ...], on the host.
            generator: Source of randomness.
        """
        return inputs

    @abc.abstractmethod
    def critic_forward(
        self,
        inputs: dict[str, torch.Tensor],
        action: torch.Tensor,
        next_inputs: dict[str, torch.Tensor],
        noise: torch.Tensor,
        members: torch.Tensor | None = None,
    ) -> CriticEvaluation:
        """Evaluate ``N`` transitions.

        Args:
            inputs: As ``observe`` returns.
            action: float32 [N, C, A]; as in ``forward_inputs``.
            next_inputs: As ``inputs``, after the chunk.
            noise: float32 [N, *noise_shape]; as the algorithm makes it of standard normal noise.
            members: int64 [M]; target critics that value the next actions. None takes all.
        """

    @abc.abstractmethod
    def actor_forward(self, inputs: dict[str, torch.Tensor], noise: torch.Tensor) -> ActorEvaluation:
        """Evaluate the present policy in ``N`` states.

        Args:
            inputs: As ``observe`` returns.
            noise: float32 [N, *noise_shape]; standard normal.
        """
