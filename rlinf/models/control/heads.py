"""Heads that policies share: multi-layer perceptrons with orthogonal weights, and the diagonal Gaussian."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from rlinf.config.schema.model import StatePolicyConfig

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU}
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def run_head(head: nn.Module, features: torch.Tensor) -> torch.Tensor:
    """Run a network in the precision of its weights; everything outside stays float32."""
    output: torch.Tensor = head(features.to(next(head.parameters()).dtype))
    return output.float() if output.dtype in {torch.bfloat16, torch.float16} else output


def gaussian_logprob(action: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
    """Return the log-density of each component under a diagonal Gaussian."""
    return -0.5 * ((action - mean) * torch.exp(-log_std)) ** 2 - log_std - HALF_LOG_2PI


def gaussian_entropy(log_std: torch.Tensor) -> torch.Tensor:
    """Return the entropy of each component of a diagonal Gaussian."""
    return log_std + 0.5 + HALF_LOG_2PI


def orthogonal_mlp(
    cfg: StatePolicyConfig, output_dim: int, *, output_gain: float, input_dim: int | None = None
) -> nn.Sequential:
    """Build a network with the hidden layers of ``cfg`` and orthogonal weights; it reads ``obs_dim`` by default."""
    layers: list[nn.Module] = []
    width = input_dim or cfg.state_size
    for hidden in cfg.hidden_dims:
        layers += [orthogonal(nn.Linear(width, hidden), math.sqrt(2)), ACTIVATIONS[cfg.activation]()]
        width = hidden
    layers.append(orthogonal(nn.Linear(width, output_dim), output_gain))
    return nn.Sequential(*layers)


def orthogonal(layer: nn.Linear, gain: float) -> nn.Linear:
    """Initialise a layer with orthogonal weights of a gain and no bias, and return it."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer
