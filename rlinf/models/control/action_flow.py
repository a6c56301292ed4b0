"""A conditional flow over chunks of actions: carries noise to actions in a few steps, and keeps account of its density.

Time runs from 0 (noise ``e``) to 1 (actions ``a``) on straight lines ``x_t = (1 - t) e + t a``, whose velocity is
``a - e`` (Liu et al., arXiv 2209.03003). The ``K`` steps, of length ``dt = 1 / K``, begin at t = 0, dt, ..., 1 - dt.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import Protocol

import torch
from torch import nn

from rlinf.config.schema.model import FlowPolicyConfig
from rlinf.models.control.heads import gaussian_logprob, orthogonal_mlp, run_head
from rlinf.models.control.velocity import VELOCITIES

_LOG_STD_BOUNDS = (-5.0, 2.0)
"""Log standard deviations that are learned are squashed into these, as in SAC Flow: a gradient never dies."""
_HALF_LOG_2PI_E = 0.5 * math.log(2.0 * math.pi * math.e)


class NoiseKeys(Protocol):
    """What noise needs to know of a model."""

    @property
    def num_denoise_steps(self) -> int:
        """Steps (``K``)."""

    @property
    def num_action_chunks(self) -> int:
        """Actions that are executed (``C``)."""

    @property
    def action_size(self) -> int:
        """Numbers of an action (``A``)."""

    @property
    def noise_level(self) -> float:
        """Factor on the noise."""


class Noise(nn.Module, abc.ABC):
    """How a step departs from the straight way: the mean and the standard deviation of its end.

    Args:
        cfg: The model's keys.
        features: Width of what was observed (``F``).
    """

    def __init__(self, cfg: NoiseKeys, features: int) -> None:
        super().__init__()
        self.num_steps = cfg.num_denoise_steps
        self.shape = (cfg.num_action_chunks, cfg.action_size)
        self.level = cfg.noise_level

    def drift(self, velocity: torch.Tensor, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Return the mean displacement per unit of time.

        Args:
            velocity: [N, C, A] at the beginning of the step.
            x: [N, C, A]; where it begins.
            time: [N, 1, 1]; when.
        """
        return velocity

    @abc.abstractmethod
    def log_stds(self, features: torch.Tensor) -> torch.Tensor | None:
        """Return the log standard deviations of all steps for observations [N, F]: [N, K, C, A]; None without noise."""


class NoNoise(Noise):
    """``flow_ode``: none; only the point that a flow starts from is random."""

    def log_stds(self, features: torch.Tensor) -> None:
        """See ``Noise``."""


class DiffusionNoise(Noise):
    """``flow_sde``: as much noise as a correction of the drift takes away again, so that the distribution stays.

    The equation ``dx = [v + s^2 / 2 * score] dt + s dw`` has the marginals of the flow for any ``s``. The score of a
    straight line's point is ``(t v - x) / (1 - t)``, and ``s = level * sqrt((1 - t) / t)`` (Flow-GRPO, Liu et al.,
    arXiv 2505.05470, whose time runs the other way). At t = 0, where that has no bound, t is taken as ``dt``.
    """

    def drift(self, velocity: torch.Tensor, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """See ``Noise``."""
        rate = self.level**2 / time.clamp(min=1.0 / self.num_steps)
        return velocity + 0.5 * rate * (time * velocity - x)

    def log_stds(self, features: torch.Tensor) -> torch.Tensor:
        """See ``Noise``: the same for all observations."""
        step = 1.0 / self.num_steps
        times = torch.arange(self.num_steps, device=features.device) * step
        variances = self.level**2 * (1.0 - times) / times.clamp(min=step) * step
        return (0.5 * variances.log()).view(1, -1, 1, 1).expand(features.shape[0], -1, *self.shape)


class LearnedNoise(Noise):
    """``flow_noise``: noise whose size a network chooses for each observation.

    After ReinFlow (Zhang et al., arXiv 2505.22094); here the size is the same in all steps, as in SAC Flow.

    Args:
        cfg: The model's keys.
        features: Width of what was observed (``F``).
    """

    def __init__(self, cfg: FlowPolicyConfig, features: int) -> None:
        super().__init__(cfg, features)
        self.head = orthogonal_mlp(cfg, math.prod(self.shape), output_gain=0.01, input_dim=features)
        low, high = _LOG_STD_BOUNDS
        share = (math.log(cfg.noise_level) - low) / (high - low)
        output = self.head[-1]
        assert isinstance(output, nn.Linear)
        nn.init.constant_(output.bias, math.atanh(2.0 * share - 1.0))

    def log_stds(self, features: torch.Tensor) -> torch.Tensor:
        """See ``Noise``: the same for all steps."""
        low, high = _LOG_STD_BOUNDS
        raw = run_head(self.head, features)
        log_std = low + 0.5 * (high - low) * (torch.tanh(raw) + 1.0)
        return log_std.view(-1, 1, *self.shape).expand(-1, self.num_steps, -1, -1)


NOISES: dict[str, Callable[[FlowPolicyConfig, int], Noise]] = {
    "flow_ode": NoNoise,
    "flow_sde": DiffusionNoise,
    "flow_noise": LearnedNoise,
}
"""What ``actor.model.noise_method`` names."""


class ActionFlow(nn.Module):
    """A flow over chunks of actions [C, A], given observation features [N, F].

    Log-probabilities are those of the steps that were taken from a given start, summed over the steps: a product of
    Gaussians. Where a flow starts has the same density under every policy and is left out.

    Args:
        cfg: The model's keys.
        features: Width of what was observed (``F``).
    """

    def __init__(self, cfg: FlowPolicyConfig, features: int) -> None:
        super().__init__()
        self.num_steps = cfg.num_denoise_steps
        self.shape = (cfg.num_action_chunks, cfg.action_size)
        self.network = VELOCITIES[cfg.velocity](cfg, features)
        self.noise = NOISES[cfg.noise_method](cfg, features)

    @property
    def noise_shape(self) -> tuple[int, ...]:
        """Shape of the noise of one sample: [K + 1, C, A], for the start and for each step."""
        return (self.num_steps + 1, *self.shape)

    def velocity(self, features: torch.Tensor, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Return the velocity at points [N, C, A] and times [N], in the precision of the weights, as float32."""
        dtype = next(self.network.parameters()).dtype
        output: torch.Tensor = self.network(features.to(dtype), x.to(dtype), time.to(dtype))
        return output.float() if output.dtype in {torch.bfloat16, torch.float16} else output

    def integrate(self, features: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Follow the velocity from ``start`` [N, C, A] without noise: actions [N, C, A]."""
        x = start
        for step in range(self.num_steps):
            time = torch.full(x.shape[:1], step / self.num_steps, device=x.device)
            x = x + self.velocity(features, x, time) / self.num_steps
        return x

    def sample(self, features: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Carry noise to actions.

        Args:
            features: [N, F].
            noise: [N, K + 1, C, A]; standard normal.

        Returns:
            The points passed, [N, K + 1, C, A], the last of them the actions; and log-probabilities [N, C, A], 0
            without noise in the steps. Both with gradients.
        """
        log_stds = self.noise.log_stds(features)
        chain = [noise[:, 0]]
        for step in range(self.num_steps):
            time = torch.full(noise.shape[:1], step / self.num_steps, device=noise.device)
            end = self._mean(features, chain[-1], time)
            chain.append(end if log_stds is None else end + noise[:, step + 1] * log_stds[:, step].exp())
        if log_stds is None:
            return torch.stack(chain, 1), torch.zeros_like(noise[:, 0])
        logprobs = gaussian_logprob(noise[:, 1:], torch.zeros_like(log_stds), torch.zeros_like(log_stds)) - log_stds
        return torch.stack(chain, 1), logprobs.sum(1)

    def evaluate(self, features: torch.Tensor, chain: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Recompute the log-probabilities of points passed before, all steps at once.

        Args:
            features: [N, F].
            chain: [N, K + 1, C, A].

        Returns:
            Log-probabilities and entropies, both [N, C, A].
        """
        log_stds = self.noise.log_stds(features)
        assert log_stds is not None
        times = torch.arange(self.num_steps, device=chain.device) / self.num_steps
        means = self._mean(
            features.repeat_interleave(self.num_steps, 0), chain[:, :-1].flatten(0, 1), times.repeat(len(chain))
        )
        logprobs = gaussian_logprob(chain[:, 1:], means.view_as(log_stds), log_stds)
        return logprobs.sum(1), (log_stds + _HALF_LOG_2PI_E).sum(1)

    def _mean(self, features: torch.Tensor, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        drift = self.noise.drift(self.velocity(features, x, time), x, time.view(-1, 1, 1))
        return x + drift / self.num_steps
