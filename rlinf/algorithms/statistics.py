"""Means and standard deviations over all ranks, over a mask and over groups."""

from __future__ import annotations

import torch

from rlinf.algorithms.types import AllReduce, require_same_shape
from rlinf.errors import AlgorithmError

EPSILON = 1e-6
"""Added to a standard deviation that divides; small compared with the spread of informative rewards."""


def normalize_masked(values: torch.Tensor, mask: torch.Tensor, all_reduce: AllReduce | None = None) -> torch.Tensor:
    """Bring the entries under ``mask`` to mean 0 and sample standard deviation 1 over all ranks.

    Args:
        values: Float tensor of any shape; may differ in shape between ranks.
        mask: bool, of the same shape.
        all_reduce: Sum over data-parallel ranks; None on one rank. Called twice on every rank, also with an empty mask.

    Returns:
        Normalised values, 0 outside the mask; all 0 where the valid entries are equal or there is only one.
    """
    require_same_shape("normalize_masked", values=values, mask=mask)
    reduce = all_reduce or _identity
    kept = torch.where(mask, values, torch.zeros_like(values))
    total, count = reduce(torch.stack((kept.sum(), mask.sum().to(values.dtype)))).unbind()
    mean = total / count.clamp(min=1)
    centered = torch.where(mask, values - mean, torch.zeros_like(values))
    # Two passes: E[x^2] - E[x]^2 would cancel where the mean is large compared with the spread.
    variance = reduce(centered.square().sum()) / (count - 1).clamp(min=1)
    deviation = variance.sqrt()
    is_constant = deviation <= 10 * torch.finfo(values.dtype).eps * mean.abs()
    return torch.where(is_constant, torch.zeros_like(centered), centered / (deviation + EPSILON))


class GroupStatistics:
    """Per-group sums over the batch axis, by group id and never by position.

    A group's trajectories must all be on this rank; the data path never splits a group.

    Args:
        group_ids: int64 [B]; equal within a group; any values, in any order.
        played: bool [B]; false for trajectories without a valid step, which count in no group.

    Raises:
        AlgorithmError: The two differ in shape.
    """

    def __init__(self, group_ids: torch.Tensor, played: torch.Tensor) -> None:
        if group_ids.ndim != 1 or group_ids.shape != played.shape:
            raise AlgorithmError(
                f"group_ids must be [B] with B = {played.shape[0]} trajectories, received {list(group_ids.shape)}."
            )
        unique, self._group = torch.unique(group_ids, return_inverse=True)
        self._num_groups = unique.numel()
        self._played = played
        self.sizes = self._sum(torch.ones_like(group_ids))
        """int64 [B]: size of the trajectory's group."""

    def mean(self, scores: torch.Tensor) -> torch.Tensor:
        """Return [B]: the mean of ``scores`` [B] over each trajectory's group."""
        return scores - self.centered(scores)

    def centered(self, scores: torch.Tensor) -> torch.Tensor:
        """Return [B]: ``scores`` [B] less their group's mean; exactly 0 where a group's scores are equal."""
        # Shifting by one of the scores first makes equal scores exactly 0 instead of a rounding error that division by
        # a vanishing standard deviation would blow up.
        lowest = torch.full((self._num_groups,), torch.inf, dtype=scores.dtype, device=scores.device)
        lowest = lowest.scatter_reduce(0, self._group, torch.where(self._played, scores, torch.inf), "amin")
        shifted = torch.where(self._played, scores - lowest[self._group], torch.zeros_like(scores))
        centered = shifted - self._sum(shifted) / self.sizes.clamp(min=1)
        return torch.where(self._played, centered, torch.zeros_like(scores))

    def deviation(self, centered: torch.Tensor) -> torch.Tensor:
        """Return [B]: the sample standard deviation of each group from centred scores; 0 for a group of one."""
        return (self._sum(centered.square()) / (self.sizes - 1).clamp(min=1)).sqrt()

    def _sum(self, scores: torch.Tensor) -> torch.Tensor:
        kept = torch.where(self._played, scores, torch.zeros_like(scores))
        sums = torch.zeros(self._num_groups, dtype=scores.dtype, device=scores.device)
        return sums.index_add(0, self._group, kept)[self._group]


def trajectory_scores(rewards: torch.Tensor, loss_mask: torch.Tensor) -> torch.Tensor:
    """Return [B]: the sum of each trajectory's ``rewards`` [S, B] over its valid steps (``loss_mask`` bool [S, B])."""
    require_same_shape("trajectory_scores", rewards=rewards, loss_mask=loss_mask)
    return torch.where(loss_mask, rewards, torch.zeros_like(rewards)).sum(dim=0)


def _identity(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
