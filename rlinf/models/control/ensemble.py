"""Layers of several networks side by side, each on its own slice of [E, N, ...]."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_reduce
from torch.nn import functional

# Bhatt et al. (2024), appendix: momentum and clipping of batch renormalisation, and the updates in which it is plain
# batch normalisation; epsilon as in their code.
_MOMENTUM, _EPSILON = 0.99, 1e-3
_LARGEST_SCALE, _LARGEST_SHIFT = 3.0, 5.0
_WARMUP_UPDATES = 100_000


class EnsembleLayer(nn.Module):
    """A layer of ``E`` networks, some of which can be chosen."""


class EnsembleLinear(EnsembleLayer):
    """``E`` linear layers.

    Args:
        ensemble: Their number.
        in_dim: Width of the input.
        out_dim: Width of the output.
    """

    def __init__(self, ensemble: int, in_dim: int, out_dim: int) -> None:
        super().__init__()
        layers = [nn.Linear(in_dim, out_dim) for _ in range(ensemble)]
        self.weight = nn.Parameter(torch.stack([layer.weight.detach().T for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in layers]).unsqueeze(1))

    def forward(self, x: torch.Tensor, members: torch.Tensor | None = None) -> torch.Tensor:
        """Map ``x`` [E, N, in_dim] to [E, N, out_dim]; int64 ``members`` [E] are the networks that it is for."""
        return torch.baddbmm(_choose(self.bias, members), x, _choose(self.weight, members))


class EnsembleLayerNorm(EnsembleLayer):
    """``E`` layer normalisations (Ba et al., 2016).

    Args:
        ensemble: Their number.
        dim: Width.
    """

    def __init__(self, ensemble: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(ensemble, 1, dim))
        self.bias = nn.Parameter(torch.zeros(ensemble, 1, dim))

    def forward(self, x: torch.Tensor, members: torch.Tensor | None = None) -> torch.Tensor:
        """Normalise ``x`` [E, N, dim]; int64 ``members`` [E] are the networks that it is for."""
        normal = functional.layer_norm(x, x.shape[-1:])
        return torch.addcmul(_choose(self.bias, members), normal, _choose(self.weight, members))


class EnsembleBatchRenorm(EnsembleLayer):
    """``E`` batch renormalisations (Ioffe, 2017), as in CrossQ (Bhatt et al., 2024).

    In training mode rows are normalised by the moments of the batch, which running moments follow; these bound how far
    that may lead away from them once they have seen enough batches. In evaluation mode the running moments normalise.
    The moments are those of all ranks' rows, as in ``torch.nn.SyncBatchNorm``: ranks bring equally many.

    Args:
        ensemble: Their number.
        dim: Width.
    """

    mean: torch.Tensor
    var: torch.Tensor
    updates: torch.Tensor

    def __init__(self, ensemble: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(ensemble, 1, dim))
        self.bias = nn.Parameter(torch.zeros(ensemble, 1, dim))
        self.register_buffer("mean", torch.zeros(ensemble, 1, dim))
        self.register_buffer("var", torch.ones(ensemble, 1, dim))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor, members: torch.Tensor | None = None) -> torch.Tensor:
        """Normalise ``x`` [E, N, dim]; int64 ``members`` [E] are the networks that it is for."""
        rows = x.float()
        if self.training:
            assert members is None
            normal = self._normalize_by_batch(rows)
        else:
            scale = torch.rsqrt(_choose(self.var, members) + _EPSILON)
            normal = (rows - _choose(self.mean, members)) * scale
        return torch.addcmul(_choose(self.bias, members), normal.to(x.dtype), _choose(self.weight, members))

    def _normalize_by_batch(self, x: torch.Tensor) -> torch.Tensor:
        mean = _mean_over_ranks(x.mean(1, keepdim=True))
        centered = x - mean
        var = _mean_over_ranks(centered.square().mean(1, keepdim=True))
        normal = centered * torch.rsqrt(var + _EPSILON)
        with torch.no_grad():
            std, running_std = torch.sqrt(var + _EPSILON), torch.sqrt(self.var + _EPSILON)
            trusted = self.updates >= _WARMUP_UPDATES
            scale = (std / running_std).clamp(1.0 / _LARGEST_SCALE, _LARGEST_SCALE)
            shift = ((mean - self.mean) / running_std).clamp(-_LARGEST_SHIFT, _LARGEST_SHIFT)
            scale = torch.where(trusted, scale, torch.ones_like(scale))
            shift = torch.where(trusted, shift, torch.zeros_like(shift))
            self.mean.lerp_(mean, 1.0 - _MOMENTUM)
            self.var.lerp_(var, 1.0 - _MOMENTUM)
            self.updates += 1
        return torch.addcmul(shift, normal, scale)


def _choose(tensor: torch.Tensor, members: torch.Tensor | None) -> torch.Tensor:
    return tensor if members is None else tensor[members]


def _mean_over_ranks(tensor: torch.Tensor) -> torch.Tensor:
    """Average over all ranks of the process group, if there are several; gradients flow back to all of them."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return tensor
    total: torch.Tensor = all_reduce(tensor)  # type: ignore[no-untyped-call]
    return total / dist.get_world_size()
