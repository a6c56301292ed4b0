"""The interface of training engines."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import nn

from rlinf.config.schema.train import ActorConfig
from rlinf.errors import AlgorithmError
from rlinf.models.trainable import TrainableModel, WeightForm
from rlinf.placement.parallel import ParallelLayout

BatchT = TypeVar("BatchT")
OutputT = TypeVar("OutputT")
ResultT = TypeVar("ResultT")
MetricSums = dict[str, torch.Tensor]
"""Metric name to a tensor ``[sum, count]``, added by ``add_metrics``; the same keys on every rank and micro-batch."""
Loss = tuple[torch.Tensor, MetricSums]
"""Scalar loss with a graph, and metrics."""


class WeightEntry(NamedTuple):
    """What ``TrainEngine.describe_weights`` says of a tensor.

    Attributes:
        name: Its name.
        tensor: On device ``meta``: its shape and element type.
        owner: Process, counted from 0, on which ``export_weights`` yields it when it is called with ``owned``.
    """

    name: str
    tensor: torch.Tensor
    owner: int = 0


@dataclass(frozen=True, slots=True)
class Pass(Generic[BatchT, OutputT, ResultT]):
    """One pass of the model over a micro-batch, in two parts.

    An engine that spreads the model over pipeline stages runs ``call`` on every stage and ``use`` where the output is.

    Attributes:
        call: Maps (model, micro-batch) to what the model returns, unchanged; calls the model exactly once.
        use: Maps (output, micro-batch) to a result; does not see the model.
        needs_whole_model: Whether ``call`` does anything else, so that stages cannot run it.
    """

    call: Callable[[nn.Module, BatchT], OutputT]
    use: Callable[[OutputT, BatchT], ResultT]
    needs_whole_model: bool = False

    @classmethod
    def whole(cls, function: Callable[[nn.Module, BatchT], ResultT]) -> Pass[BatchT, Any, ResultT]:
        """Return the pass of a function that needs the whole model, because it calls it several times, say.

        Args:
            function: Maps (model, micro-batch) to the result.
        """
        return Pass(call=function, use=lambda result, _: result, needs_whole_model=True)


class TrainEngine(abc.ABC):
    """A model, its optimizer and the processes they are spread over.

    Attributes:
        model: This rank's part of the model; call it, do not reach into its parameters.
        layout: How many ranks share the batch, and how many share the model.
        rank: Data-parallel rank of this process; equal on ranks that together hold one replica of the model.
        world_size: Number of data-parallel ranks.
        is_main: Whether this process writes what is written once; true on exactly one.
        device: Where batches are expected.
        trains: Whether it has an optimizer; else it holds weights alone: gradients, steps and checkpoints are errors.
        remembered: Copies in host memory of what ``held_weights`` yields, by name.
    """

    model: TrainableModel
    layout: ParallelLayout
    rank: int
    world_size: int
    is_main: bool
    device: torch.device
    trains: bool
    remembered: dict[str, list[torch.Tensor]]

    @classmethod
    @abc.abstractmethod
    def of(
        cls,
        model: TrainableModel,
        actor: ActorConfig,
        *,
        device: torch.device,
        rank: int,
        world_size: int,
        trains: bool = True,
    ) -> TrainEngine:
        """Build the engine of a recipe's model.

        Args:
            model: See the engine.
            actor: The ``actor`` section.
            device: Where to compute.
            rank: Number of this process.
            world_size: Number of processes.
            trains: Whether it trains the model; else it computes with weights that are imported, and no parameter
                requires a gradient.
        """

    def _require_training(self) -> None:
        """Return if the engine trains.

        Raises:
            AlgorithmError: It has no optimizer.
        """
        if not self.trains:
            raise AlgorithmError(
                "This engine has no optimizer: it holds weights alone, to compute with what is imported. Gradients, "
                "steps and checkpoints need an engine that was built with trains=True."
            )

    @abc.abstractmethod
    def forward_backward(
        self, micro_batches: Sequence[BatchT], work: Pass[BatchT, Any, Loss], *, optimizer: str | None = None
    ) -> MetricSums:
        """Compute the gradient of the sum of one update batch's losses; every rank brings equally many micro-batches.

        The engine averages gradients over ranks, so a loss that is a share of a global mean must carry the factor
        ``world_size``.

        Args:
            micro_batches: Opaque to the engine.
            work: Computes the loss of one of them, as if there were one rank: outputs hold every token.
            optimizer: The one that will step: only its parameters need a gradient. None computes all gradients.

        Returns:
            Metrics summed over the micro-batches of this rank.
        """

    @abc.abstractmethod
    def forward(self, micro_batches: Sequence[BatchT], work: Pass[BatchT, Any, torch.Tensor]) -> list[torch.Tensor]:
        """Apply the model without gradients, in the precision it trains in; every rank must bring equally many batches.

        Args:
            micro_batches: Opaque to the engine.
            work: Computes a tensor from one of them.

        Returns:
            The tensors of this rank's micro-batches; equal on the ranks of a replica.
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
        """Return the sum of ``tensor`` over the data-parallel ranks, on the caller's device."""

    @abc.abstractmethod
    def sum_parts(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the sum of ``tensor`` over all processes, those that share a replica included."""

    @abc.abstractmethod
    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return the (equally shaped) tensors of the data-parallel ranks, in rank order."""

    @abc.abstractmethod
    def held_weights(self) -> Iterator[torch.Tensor]:
        """Yield the memory that this rank holds of weights that change, and of buffers, in the same order each time."""

    def remember(self, name: str) -> None:
        """Keep the present weights and buffers under a name: those that change, in host memory, sharded as they are.

        Args:
            name: Of the copy; an earlier one of this name is replaced.
        """
        self.remembered[name] = [held.detach().to("cpu", copy=True) for held in self.held_weights()]

    @contextmanager
    def weights_of(self, name: str) -> Iterator[None]:
        """Return a context in which the model computes with remembered weights; all ranks enter it together.

        Only ``forward`` may be called within. The present weights wait in host memory meanwhile.

        Args:
            name: Of the copy.

        Raises:
            AlgorithmError: Nothing was remembered under the name.
        """
        if name not in self.remembered:
            raise AlgorithmError(f"No weights are remembered as '{name}': call remember('{name}') first.")
        self._exchange(self.remembered[name])
        try:
            yield
        finally:
            self._exchange(self.remembered[name])

    @torch.no_grad()
    def _exchange(self, kept: list[torch.Tensor]) -> None:
        """Swap the weights with a copy on the host, one tensor at a time."""
        for index, held in enumerate(self.held_weights()):
            present = held.to("cpu", copy=True)
            held.copy_(kept[index])
            kept[index] = present

    @abc.abstractmethod
    def offload(self) -> None:
        """Move weights and optimizer state to host memory."""

    @abc.abstractmethod
    def onload(self) -> None:
        """Move them back to the device."""

    @abc.abstractmethod
    def save(self, path: Path, *, in_background: bool = False) -> None:
        """Write weights, optimizer and step count under ``path``; called by all ranks together.

        Args:
            path: Of a folder, in the format of ``chunks``.
            in_background: Return when all is copied to host memory; ``finish_save`` ends the checkpoint.

        Raises:
            CheckpointError: It cannot be written, or the former one in the background could not. Raised on all ranks.
        """

    @abc.abstractmethod
    def finish_save(self, *, wait: bool = True) -> bool:
        """End the checkpoint that is being written in the background, if there is one; called by all ranks together.

        Args:
            wait: For ranks that are still writing; else nothing is ended before all have written.

        Returns:
            Whether nothing is under way any more.

        Raises:
            CheckpointError: It could not be written. Raised on all ranks.
        """

    @abc.abstractmethod
    def load(self, path: Path) -> None:
        """Read what ``save`` wrote, under any number of ranks."""

    @abc.abstractmethod
    def describe_weights(self, form: WeightForm = "merged") -> Iterator[WeightEntry]:
        """Describe what ``export_weights`` yields, in its order: without making anything whole, equal on all processes.

        Every tensor has one owner; owners share the bytes as evenly as the engine can.
        """

    @abc.abstractmethod
    def export_weights(
        self, form: WeightForm = "merged", *, dtype: torch.dtype | None = None, owned: bool = False
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield every parameter and buffer that inference needs whole, one at a time; called by all ranks together.

        Args:
            form: What is yielded of a model with adapters.
            dtype: Of floating-point tensors; None yields the master weights as they are.
            owned: Whether to yield only what this process owns, so that none makes the whole model whole. All
                processes take theirs to the end.
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
