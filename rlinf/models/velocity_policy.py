"""The interface of flow policies that are trained by their velocities instead of by log-probabilities."""

from __future__ import annotations

import abc
from dataclasses import dataclass

import torch

from rlinf.models.base_policy import BasePolicy


@dataclass(frozen=True, slots=True)
class VelocityEvaluation:
    """A flow policy's predictions for actions that noise was mixed into.

    Attributes:
        velocity: float32 [N, C, A]; the policy's velocity at the mixture, with gradients.
        target: float32 [N, C, A]; the velocity of the straight line from the noise to the actions.
        saturated: bool [N, C, A]; actions that were cut off at a bound.
        values: float32 [N, V]; None without a value head.
    """

    velocity: torch.Tensor
    target: torch.Tensor
    saturated: torch.Tensor
    values: torch.Tensor | None


class VelocityPolicy(BasePolicy):
    """A policy whose actions a velocity field carries from noise; its config sets ``has_velocity``."""

    @abc.abstractmethod
    def velocity_forward(
        self, forward_inputs: dict[str, torch.Tensor], noise: torch.Tensor, time: torch.Tensor
    ) -> VelocityEvaluation:
        """Evaluate ``N`` chunks of actions on their way from noise.

        Args:
            forward_inputs: What ``predict_action_batch`` reported, tensors [N, ...].
            noise: float32 [N, C, A]; standard normal.
            time: float32 [N]; from 0 (noise) to 1 (actions).
        """
