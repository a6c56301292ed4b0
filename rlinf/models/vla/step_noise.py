"""The noise that training adds to the steps of a vision-language-action policy's flow."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable

import torch
from torch import nn

from rlinf.config.schema.vla import FlowVLAConfig
from rlinf.models.control.action_flow import DiffusionNoise
from rlinf.models.control.heads import run_head

_HIDDEN_DIMS = (128, 64)
"""Widths of the hidden layers of learned noise, as published."""


class StepNoise(nn.Module, abc.ABC):
    """How a noisy step departs from the straight way: the mean and the standard deviation of its end."""

    def drift(self, velocity: torch.Tensor, x: torch.Tensor, elapsed: torch.Tensor) -> torch.Tensor:
        """Return the mean displacement per unit of time, from noise to actions, [N, J, C, A].

        Args:
            velocity: [N, J, C, A]; from noise to actions, at the beginning of each step.
            x: [N, J, C, A]; where steps begin.
            elapsed: When they begin, counted from noise; [J, 1, 1] or [N, J, 1, 1].
        """
        return velocity

    @abc.abstractmethod
    def log_stds(self, output: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        """Return log standard deviations, float32 [N, J, C, A].

        Args:
            output: [N, J, H, E]; what the expert has made of each step's beginning.
            steps: int64 [J] or, where samples have their own, [N, J]; numbers of the steps, from 0.
        """


class DiffusionStepNoise(StepNoise):
    """``flow_sde``: see ``DiffusionNoise``.

    Args:
        cfg: The model's keys.
        width: Of the expert's output (``E``).
    """

    def __init__(self, cfg: FlowVLAConfig, width: int) -> None:
        super().__init__()
        self.diffusion = DiffusionNoise(cfg, width)

    def drift(self, velocity: torch.Tensor, x: torch.Tensor, elapsed: torch.Tensor) -> torch.Tensor:
        """See ``StepNoise``."""
        return self.diffusion.drift(velocity, x, elapsed)

    def log_stds(self, output: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        """See ``StepNoise``: the same for all samples."""
        of_steps = self.diffusion.log_stds(output[:1, 0])[0, steps]
        return of_steps.expand(len(output), *of_steps.shape[-3:])


class LearnedStepNoise(StepNoise):
    """``flow_noise``: a network reads the size of the noise from the expert's output (ReinFlow, arXiv 2505.22094).

    Its logarithm lies between those of ``noise_range``, and starts in the middle. The drift is the flow's own.

    Args:
        cfg: The model's keys.
        width: Of the expert's output (``E``).
    """

    def __init__(self, cfg: FlowVLAConfig, width: int) -> None:
        super().__init__()
        self.num_actions = cfg.num_action_chunks
        self.bounds = tuple(math.log(deviation) for deviation in cfg.noise_range)
        layers: list[nn.Module] = []
        for hidden in _HIDDEN_DIMS:
            layers += [nn.Linear(width, hidden), nn.Tanh()]
            width = hidden
        self.head = nn.Sequential(*layers, nn.Linear(width, cfg.action_dim))

    def log_stds(self, output: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        """See ``StepNoise``; what is executed alone has noise."""
        low, high = self.bounds
        raw = run_head(self.head, output[:, :, : self.num_actions])
        return low + 0.5 * (high - low) * (torch.tanh(raw) + 1.0)


STEP_NOISES: dict[str, Callable[[FlowVLAConfig, int], StepNoise]] = {
    "flow_sde": DiffusionStepNoise,
    "flow_noise": LearnedStepNoise,
}
"""What ``actor.model.noise_method`` names, but for ``flow_ode``."""
LAST_NOISE_LAYER = f"noise.head.{2 * len(_HIDDEN_DIMS)}."
"""The last layer of learned noise by its name in a policy, whose first weights are 0."""
