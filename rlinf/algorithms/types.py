"""Types and shape checks that all algorithms share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch

from rlinf.errors import AlgorithmError

AllReduce: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""Returns the sum of a tensor over all data-parallel ranks; every rank calls it equally often, with equal shapes."""

Metrics: TypeAlias = dict[str, torch.Tensor]
"""Metric name to a detached pair [2] of (sum, count). Pairs are added over micro-batches, optimizer steps and ranks;
the metric is sum / count, and is undefined (left out) where the count is 0."""

Ragged: TypeAlias = Sequence[torch.Tensor]
"""One tensor [L] per sequence."""


class Columns:
    """Base of dataclasses of tensors that an algorithm takes; one that is not there is None."""

    __slots__ = ()

    def require(self, *names: str) -> tuple[torch.Tensor, ...]:
        """Return tensors by the names of their fields.

        Raises:
            AlgorithmError: One of them is None; the message names all that are.
        """
        tensors = {name: getattr(self, name) for name in names}
        missing = [f"'{name}'" for name, tensor in tensors.items() if tensor is None]
        if missing:
            raise AlgorithmError(f"{type(self).__name__} without {', '.join(missing)}: the algorithm requires it.")
        return tuple(tensors.values())


def require_same_shape(function: str, **tensors: torch.Tensor | None) -> None:
    """Refuse tensors that would broadcast against each other; None entries are skipped.

    Args:
        function: Name of the caller, for the message.
        **tensors: Tensors by argument name; all must have the first one's shape.

    Raises:
        AlgorithmError: Two shapes differ. Broadcasting [N] with [N, 1] would silently give [N, N].
    """
    given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    shapes = {tuple(tensor.shape) for tensor in given.values()}
    if len(shapes) > 1:
        listed = ", ".join(f"{name} {list(tensor.shape)}" for name, tensor in given.items())
        raise AlgorithmError(f"{function}: shapes must be equal, received {listed}. Nothing is broadcast here.")


def at_least_float32(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in float32 unless it is in float64: half precision is for models, not for sums over a batch."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def metric_pair(total: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """Return the detached pair (sum, count) of a metric, in the dtype of ``total``."""
    total = total.detach()
    return torch.stack((total, count.detach().to(total)))


def masked_metric(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the pair (sum of ``values`` where ``mask``, number of such entries); both of one shape."""
    return masked_metrics(mask, metric=values)["metric"]


def masked_metrics(mask: torch.Tensor, **values: torch.Tensor) -> Metrics:
    """Return the pairs (sum where ``mask``, number of such entries) of tensors of the mask's shape and one dtype.

    All at once, because a loss reports a dozen of them for every micro-batch.
    """
    stacked = torch.stack([at_least_float32(value.detach()) for value in values.values()])
    sums = torch.where(mask, stacked, torch.zeros_like(stacked)).flatten(1).sum(dim=1)
    pairs = torch.stack((sums, mask.sum().to(sums).expand_as(sums)), dim=1)
    return dict(zip(values, pairs.unbind(), strict=True))


def masked_sum(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the sum of ``values`` where ``mask``; entries outside may be anything, NaN included.

    Returns:
        Scalar; it carries a gradient (of zeros) even if the mask is all false.
    """
    values = at_least_float32(values)
    return torch.where(mask, values, torch.zeros_like(values)).sum()


LARGEST = frozenset({"mismatch_max_probability_difference", "actor_ratio_max"})
"""Metrics that are the largest of something: their pairs are (largest, 1), and are not added up."""


def add_metrics(totals: Metrics, metrics: Metrics) -> None:
    """Add the pairs of a micro-batch, or of an optimizer step, to those so far.

    Args:
        totals: Changed in place.
        metrics: Pairs (sum, count) by name; of ``LARGEST`` the larger pair is kept.
    """
    for name, pair in metrics.items():
        if name not in totals:
            totals[name] = pair
        else:
            totals[name] = torch.maximum(totals[name], pair) if name in LARGEST else totals[name] + pair


def finalize_metrics(metrics: Metrics) -> dict[str, float]:
    """Turn summed pairs into numbers, and add the explained variance and the effective sample size, given their parts.

    Args:
        metrics: Pairs already added over micro-batches, optimizer steps and ranks.

    Returns:
        sum / count by name; metrics whose count is 0 are left out.
    """
    pairs = {name: pair.tolist() for name, pair in metrics.items()}
    result = {name: total / count for name, (total, count) in pairs.items() if count > 0}
    parts = ("critic_return", "critic_return_square", "critic_error", "critic_error_square")
    if all(part in result for part in parts):
        mean, square, error, error_square = (result.pop(part) for part in parts)
        variance = square - mean**2
        result["critic_return"] = mean
        # A constant return cannot be explained: the ratio would be noise over rounding error.
        if variance > 1e-12 * max(square, 1e-12):
            result["critic_explained_variance"] = 1.0 - (error_square - error**2) / variance
    if "mismatch_weight" in result and "mismatch_weight_square" in result:
        result["mismatch_ess"] = result.pop("mismatch_weight") ** 2 / result.pop("mismatch_weight_square")
    return result
