"""Chunks that go on from the chunk before, which is executed while they are computed (real-time chunking).

Black et al., "Real-Time Execution of Action Chunking Flow Policies" (arXiv 2506.07339): the actions that were planned
before and not executed yet guide the flow as the known part of an image guides inpainting. Here time runs from 1,
noise, to 0, and velocities point to noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from rlinf.config.schema.vla import RealTimeChunkingConfig


@dataclass(frozen=True, slots=True)
class PlannedBefore:
    """What the chunk before has planned for the steps that a new chunk is of.

    Attributes:
        actions: float32 [N, H, D], normalised and padded; 0 where nothing was planned.
        weights: float32 [H, D]; how much each number matters, from 0 to 1.
        max_weight: Bound of the guidance (``beta``).
    """

    actions: torch.Tensor
    weights: torch.Tensor
    max_weight: float


def prefix_weights(cfg: RealTimeChunkingConfig, *, horizon: int, num_executed: int) -> torch.Tensor:
    """Return how much each action of a new chunk has to agree with what was planned before, float32 [H] (equation 5).

    The first ``d`` are executed while the chunk is computed and count fully; behind the ``H - s`` planned ones nothing
    does.

    Args:
        cfg: ``d``, and how weights fall in between.
        horizon: Actions of a chunk (``H``).
        num_executed: Actions from one chunk's beginning to that of the next (``s``).
    """
    planned, delay = horizon - num_executed, cfg.inference_delay
    weights = torch.zeros(horizon)
    weights[:delay] = 1.0
    if cfg.prefix_attention_schedule == "zeros":
        return weights
    falling = (planned - torch.arange(delay, planned)) / (planned - delay + 1)
    if cfg.prefix_attention_schedule == "ones":
        falling = torch.ones_like(falling)
    elif cfg.prefix_attention_schedule == "exp":
        falling = falling * torch.expm1(falling) / math.expm1(1.0)
    weights[delay:planned] = falling
    return weights


def guided_velocity(
    velocity: Callable[[torch.Tensor], torch.Tensor], point: torch.Tensor, time: float, before: PlannedBefore
) -> torch.Tensor:
    """Return the velocity at a point, led to where actions agree with those planned before (equations 2 to 4).

    Args:
        velocity: Returns the flow's velocity at a point, [N, H, D] of [N, H, D], with gradients.
        point: float32 [N, H, D].
        time: From 1, noise, to 0.
        before: What was planned.
    """
    with torch.enable_grad():
        start = point.detach().requires_grad_(True)
        plain = velocity(start)
        ends = start - time * plain
        error = (before.actions - ends.detach()) * before.weights
        # How the flow's end moves with the point, applied to the error: a vector-Jacobian product.
        (correction,) = torch.autograd.grad(ends, start, error)
    return plain.detach() - _guidance(time, before.max_weight) * correction


def _guidance(time: float, bound: float) -> float:
    """Return the factor on the correction: ``(1 - tau) / (tau r^2)``, ``r^2 = (1 - tau)^2 / (tau^2 + (1 - tau)^2)``.

    Args:
        time: ``1 - tau``.
        bound: Of the factor, which has none at ``tau`` 0.
    """
    tau = 1.0 - time
    factor = (tau**2 + time**2) / (tau * time) if tau > 0.0 else math.inf
    return min(factor, bound)
