"""What ``SteppingEngine`` needs of a backend: a model that advances all running answers by one step at a time."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch

from rlinf.data.generation import GenerationRequest
from rlinf.hybrid_engines.generation.answers import Answer
from rlinf.hybrid_engines.weights.bucket import Manifest


class DrawnToken(NamedTuple):
    """One token.

    Attributes:
        key: Of the answer it belongs to.
        token_id: What was drawn.
        logprob: See ``Completion``.
        full_logprob: See ``Completion``; only read where the answer's parameters leave tokens out.
    """

    key: int
    token_id: int
    logprob: float
    full_logprob: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendLimits:
    """What a backend says of itself once it is loaded.

    Attributes:
        vocab_size: Number of tokens that the model knows.
        max_running: Answers that it generates at a time.
        admission_size: Answers that are worth interrupting the running ones for; 1 if taking up costs them nothing.
    """

    vocab_size: int
    max_running: int
    admission_size: int = 1


class StepBackend(abc.ABC):
    """A model with its caches; all methods are called on one thread.

    It draws tokens, and nothing else: ``SteppingEngine`` says when an answer ends, holds those that wait, and never
    lets one go on with a cache that older weights have filled.

    Attributes:
        runs_ahead: Whether it generates between steps too. A pause then takes its answers out.
    """

    runs_ahead: ClassVar[bool] = False

    @abc.abstractmethod
    def load(self) -> BackendLimits:
        """Load the model; called once, first."""

    def check(self, request: GenerationRequest) -> None:
        """Refuse a request that this model cannot answer as asked, before anything of it is added.

        Raises:
            EngineError: A field asks for what it cannot do; the message names the field.
        """
        return

    @abc.abstractmethod
    def add(self, answers: Sequence[Answer]) -> None:
        """Take up answers; each goes on from ``context``, and its tokens so far count as generated."""

    @abc.abstractmethod
    def step(self) -> Iterable[DrawnToken]:
        """Draw a token for some or all answers.

        An answer that its parameters end is removed right afterwards, or may have ended here by the same rules.
        """

    @abc.abstractmethod
    def remove(self, keys: Sequence[int]) -> None:
        """Forget answers and what is cached of them."""

    @abc.abstractmethod
    def begin_update(self, manifest: Manifest) -> None:
        """Get ready for weights; no answer is running.

        Raises:
            WeightSyncError: The manifest's tensors are not the model's; one that is partial may lack some.
        """

    @abc.abstractmethod
    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Copy some tensors into the model; their memory belongs to the caller again on return."""

    @abc.abstractmethod
    def commit(self) -> None:
        """Forget everything computed with the old weights.

        Raises:
            WeightSyncError: The model has weights that none of the tensors filled, and the update was not partial.
        """

    @abc.abstractmethod
    def sleep(self) -> bool:
        """Give memory back; no answer is running. Returns whether the weights are kept."""

    @abc.abstractmethod
    def wake(self) -> None:
        """Take the memory again."""

    @abc.abstractmethod
    def read_weights(self, names: Sequence[str]) -> dict[str, torch.Tensor] | None:
        """Return copies of weights on the host; None if it cannot."""

    @abc.abstractmethod
    def close(self) -> None:
        """End what ``load`` has started, perhaps only in part."""
