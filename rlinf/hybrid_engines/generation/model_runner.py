"""The interface of model runners: a model that advances all running sequences by one step at a time."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from rlinf.data.messages.generation import GenerationRequest, RouteArray
from rlinf.hybrid_engines.generation.token_sequence import TokenSequence
from rlinf.hybrid_engines.weights.bucket import Manifest


class SampledToken(NamedTuple):
    """One token.

    Attributes:
        key: Of its sequence.
        token_id: The token.
        logprob: See ``Completion``.
        full_logprob: See ``Completion``; only read where the sequence's parameters leave tokens out.
        routes: See ``RouteArray``; of the last tokens of the context that it follows, those at least of which none were
            returned before. None unless they are recorded.
    """

    key: int
    token_id: int
    logprob: float
    full_logprob: float
    routes: RouteArray | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerLimits:
    """Limits of a loaded model runner.

    Attributes:
        vocab_size: Number of tokens that the model knows.
        max_running: Most sequences that it generates at a time.
        admission_size: Fewest waiting sequences that interrupt running ones; 1 if admission costs those nothing.
    """

    vocab_size: int
    max_running: int
    admission_size: int = 1


class ModelRunner(abc.ABC):
    """A model with its caches; all methods are called on one thread.

    It samples tokens, and nothing else: ``EngineScheduler`` decides when a sequence ends, queues waiting ones, and
    never continues one with a cache of older weights.

    Attributes:
        runs_ahead: Whether it generates between steps, too; a pause then removes its sequences.
        takes_partial_updates: Whether some weights can be replaced alone; not where they are fused and quantised.
    """

    runs_ahead: ClassVar[bool] = False
    takes_partial_updates: bool = True

    @abc.abstractmethod
    def load(self) -> RunnerLimits:
        """Load the model; called once, first."""

    def check(self, request: GenerationRequest) -> None:
        """Refuse a request that this model cannot serve, before any of its sequences is added.

        Raises:
            EngineError: A field is not supported; the message names it.
        """
        return

    @abc.abstractmethod
    def add(self, sequences: Sequence[TokenSequence]) -> None:
        """Admit sequences; each continues from ``context``, and its tokens so far count as generated."""

    @abc.abstractmethod
    def step(self) -> Iterable[SampledToken]:
        """Sample a token for some or all sequences.

        A sequence that has finished is removed right afterwards; a runner may end it itself by the same rules.
        """

    @abc.abstractmethod
    def remove(self, keys: Sequence[int]) -> None:
        """Remove sequences and their caches."""

    @abc.abstractmethod
    def begin_update(self, manifest: Manifest) -> None:
        """Get ready for weights; no sequence is running.

        Raises:
            WeightSyncError: The manifest's tensors are not the model's; one that is partial may lack some.
        """

    @abc.abstractmethod
    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Copy some tensors into the model; their memory belongs to the caller again on return.

        If the manifest ``is_lasting``, parameters may be views of it until the next update instead.
        """

    @abc.abstractmethod
    def commit(self) -> None:
        """Forget everything computed with the old weights.

        Raises:
            WeightSyncError: The model has weights that none of the tensors filled, and the update was not partial.
        """

    @abc.abstractmethod
    def sleep(self) -> bool:
        """Free memory; no sequence is running. Returns whether the weights are kept."""

    @abc.abstractmethod
    def wake(self) -> None:
        """Take the memory again."""

    @abc.abstractmethod
    def read_weights(self, names: Sequence[str]) -> dict[str, torch.Tensor] | None:
        """Return copies of weights on the host; None if it cannot."""

    @abc.abstractmethod
    def close(self) -> None:
        """End what ``load`` has started, perhaps only in part."""
