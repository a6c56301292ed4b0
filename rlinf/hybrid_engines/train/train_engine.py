"""The interface of training engines."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from torch import nn

from rlinf.models.trainable import WeightForm

BatchT = TypeVar("BatchT")
MetricSums = dict[str, torch.Tensor]
"""Metric name to a tensor ``[sum, count]``; the same keys on every rank and in every micro-batch."""
LossFn = Callable[[nn.Module, BatchT], tuple[torch.Tensor, MetricSums]]
"""Maps (model, micro-batch) to (scalar loss with a graph, metrics)."""


class TrainEngine(abc.ABC):
    """A model, its optimizer and the processes they are spread over.

    Attributes:
        model: The (possibly sharded) module; call it, do not reach into its parameters.
        rank: Data-parallel rank of this process.
        world_size: Number of data-parallel ranks.
        device: Where batches are expected.
    """

    model: nn.Module
    rank: int
    world_size: int
    device: torch.device

    @abc.abstractmethod
    def forward_backward(
        self, micro_batches: Sequence[BatchT], loss_fn: LossFn[BatchT], *, optimizer: str | None = None
    ) -> MetricSums:
        """Compute the gradient of one update batch; every rank must bring equally many micro-batches.

        The engine averages gradients over ranks, so a loss that is a share of a global mean must carry the factor
        ``world_size``.

        Args:
            micro_batches: Opaque to the engine.
            loss_fn: Computes the loss of one of them.
            optimizer: The one that will step: only its parameters need a gradient. None computes all gradients.

        Returns:
            Metrics summed over the micro-batches of this rank.
        """

    @abc.abstractmethod
    def forward(
        self, micro_batches: Sequence[BatchT], function: Callable[[nn.Module, BatchT], torch.Tensor]
    ) -> list[torch.Tensor]:
        """Apply the model without gradients, in the precision it trains in; every rank must bring equally many batches.

        Args:
            micro_batches: Opaque to the engine.
            function: Maps (model, micro-batch) to a tensor.

        Returns:
            The tensors of this rank's micro-batches.
        """

    @abc.abstractmethod
    def step(self, optimizer: str = "policy") -> dict[str, float]:
        """Clip an optimizer's gradient, update its weights and clear all gradients.

        Args:
            optimizer: ``policy``, or ``critic`` where the model has critics.

        Returns:
            ``grad_norm`` (global, before clipping) and ``lr``.

        Raises:
            NumericalError: The gradient is not finite (on every rank alike).
        """

    @abc.abstractmethod
    def soft_update(self, target: nn.Module, source: nn.Module, weight: float) -> None:
        """Move the parameters of a part of the model towards those of another part (Polyak averaging).

        Args:
            target: Changed in place to ``target + weight * (source - target)``.
            source: Left as it is.
            weight: 1 copies.
        """

    @abc.abstractmethod
    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the sum of ``tensor`` over all ranks, on the caller's device."""

    @abc.abstractmethod
    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return the (equally shaped) tensors of all ranks, in rank order."""

    @abc.abstractmethod
    def offload(self) -> None:
        """Move weights and optimizer state to host memory."""

    @abc.abstractmethod
    def onload(self) -> None:
        """Move them back to the device."""

    @abc.abstractmethod
    def save(self, path: Path) -> None:
        """Write weights, optimizer and step count under ``path``; called by all ranks together."""

    @abc.abstractmethod
    def load(self, path: Path) -> None:
        """Read what ``save`` wrote, under any number of ranks."""

    @abc.abstractmethod
    def describe_weights(self, form: WeightForm = "merged") -> Iterator[tuple[str, torch.Tensor]]:
        """Yield what ``export_weights`` yields, in its order, on device ``meta``: without making anything whole."""

    @abc.abstractmethod
    def export_weights(self, form: WeightForm = "merged") -> Iterator[tuple[str, torch.Tensor]]:
        """Yield every parameter and buffer that inference needs whole, one at a time; called by all ranks together.

        Args:
            form: What is yielded of a model with adapters.
        """

    @abc.abstractmethod
    def import_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Copy whole tensors into the model, by the names of ``export_weights("parts")``; every rank is given all.

        Raises:
            WeightSyncError: The model has no tensor of such a name and shape.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Leave the process group."""
