"""Observation normalisation by running statistics that are buffers, so that they travel with the weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from rlinf.config.schema.model import StatePolicyConfig


class RunningNormalizer(nn.Module):
    """Normalises vectors by the mean and variance of all that it has been shown.

    Moments are merged by Chan et al. (1983), in float64: sums over ranks give the same result for any number of ranks.

    Args:
        dim: Length of a vector.
        clip: Bound of a normalised component.
    """

    count: torch.Tensor
    mean: torch.Tensor
    var: torch.Tensor

    def __init__(self, dim: int, clip: float) -> None:
        super().__init__()
        self.clip = clip
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(dim, dtype=torch.float64))
        self.register_buffer("var", torch.ones(dim, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise ``x`` [..., dim]; before the first update this only clips."""
        scaled = (x - self.mean.to(x.dtype)) * torch.rsqrt(self.var + 1e-8).to(x.dtype)
        return scaled.clamp(-self.clip, self.clip)

    @torch.no_grad()
    def update(self, x: torch.Tensor, all_reduce: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Merge the vectors ``x`` [N, dim] of all ranks into the statistics.

        Args:
            x: This rank's vectors, on any device; may be empty.
            all_reduce: Sums a tensor over all ranks.
        """
        x = x.to(self.mean.device, torch.float64)
        count, total = _reduce_count_and_sum(x, all_reduce)
        if count == 0:
            return
        batch_mean = total / count
        batch_m2 = all_reduce(((x - batch_mean) ** 2).sum(0))
        merged = self.count + count
        delta = batch_mean - self.mean
        m2 = self.var * self.count + batch_m2 + delta**2 * self.count * count / merged
        self.mean.add_(delta * count / merged)
        self.var.copy_(m2 / merged)
        self.count.copy_(merged)


class NoNormalizer(nn.Module):
    """Leaves vectors as they are."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x``."""
        return x

    def update(self, x: torch.Tensor, all_reduce: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Keep no statistics."""


def build_normalizer(cfg: StatePolicyConfig) -> RunningNormalizer | NoNormalizer:
    """Build what a model's keys ask for."""
    return RunningNormalizer(cfg.state_size, cfg.obs_clip) if cfg.normalize_obs else NoNormalizer()


def _reduce_count_and_sum(
    x: torch.Tensor, all_reduce: Callable[[torch.Tensor], torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    packed = torch.cat([x.new_tensor([x.shape[0]]), x.sum(0)])
    packed = all_reduce(packed)
    return packed[0], packed[1:]
