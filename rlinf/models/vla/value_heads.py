"""Value heads of vision-language-action policies."""

from __future__ import annotations

from torch import nn

from rlinf.config.schema.vla import VLAConfig


def value_head(cfg: VLAConfig, width: int, num_values: int) -> nn.Sequential:
    """Return a network from features [N, width] to values [N, V]; ``initial_head`` makes its first weights."""
    layers: list[nn.Module] = []
    for hidden in cfg.value_hidden_dims:
        layers += [nn.Linear(width, hidden), nn.GELU()]
        width = hidden
    return nn.Sequential(*layers, nn.Linear(width, num_values))
