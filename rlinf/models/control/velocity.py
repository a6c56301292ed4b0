"""Velocity fields as networks: where a chunk of actions that is still part noise moves, given what was observed."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from rlinf.config.schema.model import FlowPolicyConfig
from rlinf.models.control.heads import orthogonal_mlp

_TIME_OCTAVES = 4
"""Time enters as sines and cosines of 1, 2, 4 and 8 half turns: finer than the steps that policies make."""
_OPEN_GATE = 5.0
"""Start of the gate before the sigmoid, as in SAC Flow: it lets 99% pass."""


class MLPVelocity(nn.Module):
    """A velocity that a network gives directly.

    Args:
        cfg: The model's keys.
        features: Width of what was observed (``F``).
        outputs: Numbers per dimension of an action.
    """

    def __init__(self, cfg: FlowPolicyConfig, features: int, *, outputs: int = 1) -> None:
        super().__init__()
        self.size = cfg.num_action_chunks * cfg.action_size
        width = features + self.size + 2 * _TIME_OCTAVES
        self.trunk = orthogonal_mlp(cfg, outputs * self.size, output_gain=0.01, input_dim=width)

    def forward(self, features: torch.Tensor, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Return the velocity of each point.

        Args:
            features: [N, F]; what was observed.
            x: [N, C, A]; the points.
            time: [N]; from 0 (noise) to 1 (actions).

        Returns:
            [N, C, A].
        """
        return self._output(features, x, time).view_as(x)

    def _output(self, features: torch.Tensor, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([features, x.flatten(1), _embed(time)], -1)
        output: torch.Tensor = self.trunk(joined)
        return output


class GatedVelocity(MLPVelocity):
    """``z * (h - x)`` with a gate ``z`` in (0, 1) and a candidate ``h``: a step then is one of a gated recurrent unit.

    SAC Flow (Zhang et al., arXiv 2509.25756): each step forgets a share of where it began, so that what flows back
    directly through many steps fades instead of adding up. Gate and candidate share their hidden layers.

    Args:
        cfg: The model's keys.
        features: Width of what was observed (``F``).
    """

    def __init__(self, cfg: FlowPolicyConfig, features: int) -> None:
        super().__init__(cfg, features, outputs=2)
        output = self.trunk[-1]
        assert isinstance(output, nn.Linear)
        with torch.no_grad():
            output.weight[: self.size] = 0.0
            output.bias[: self.size] = _OPEN_GATE

    def forward(self, features: torch.Tensor, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """See ``MLPVelocity``."""
        gate, candidate = self._output(features, x, time).view(-1, 2, *x.shape[1:]).unbind(1)
        return torch.sigmoid(gate) * (candidate - x)


VELOCITIES: dict[str, Callable[[FlowPolicyConfig, int], nn.Module]] = {"mlp": MLPVelocity, "gated": GatedVelocity}
"""What ``actor.model.velocity`` names."""


def _embed(time: torch.Tensor) -> torch.Tensor:
    """Embed times [N] as [N, 2 * octaves]."""
    frequencies = math.pi * 2.0 ** torch.arange(_TIME_OCTAVES, device=time.device, dtype=time.dtype)
    angles = time.unsqueeze(-1) * frequencies
    return torch.cat([angles.sin(), angles.cos()], -1)
