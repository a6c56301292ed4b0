"""The contract of rewards."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from rlinf.data.messages.responses import RewardQuery
from rlinf.data.messages.rewards import RewardRequest

Q = TypeVar("Q")
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class RewardContext:
    """What a reward may use of the worker that it runs in.

    Attributes:
        device: Where to compute.
    """

    device: torch.device = torch.device("cpu")


ON_CPU = RewardContext()


class Reward(abc.ABC, Generic[Q, S]):
    """Scores queries.

    Args:
        cfg: The entry of ``reward.rewards``.
        context: What it may use of its worker.
    """

    def __init__(self, cfg: Any, context: RewardContext = ON_CPU) -> None:
        self.cfg = cfg
        self.device = context.device

    @abc.abstractmethod
    def __call__(self, queries: Q, /) -> S:
        """Return the scores of queries."""

    def close(self) -> None:
        """Free what the reward holds; called once."""


class EmbodiedReward(Reward[RewardRequest, torch.Tensor]):
    """Scores chunks of actions.

    The query is a ``RewardRequest`` of ``B`` environments; the scores are float [B, C], on any device. The caller masks
    actions that were not executed.
    """


class TextReward(Reward[Sequence[RewardQuery], list[float]]):
    """Scores responses of a language model.

    The queries are a batch of responses; the scores are one number for each, in their order: a ``MeasuredReward`` where
    there is more to report. Called from threads that may block, and from several of them at a time.

    Every text has a score: a response that cannot be parsed is no error.
    """


class MeasuredReward(float):
    """A reward of text with numbers about how it was computed, such as whether a program ran out of time.

    Args:
        value: The reward.
        metrics: The numbers by name; their means over a step's responses become metrics of the run.
    """

    metrics: Mapping[str, float]

    def __new__(cls, value: float, metrics: Mapping[str, float]) -> MeasuredReward:
        """See the class."""
        measured = super().__new__(cls, value)
        measured.metrics = dict(metrics)
        return measured

    def __reduce__(self) -> tuple[type[MeasuredReward], tuple[float, Mapping[str, float]]]:
        """Return how to make it anew."""
        return MeasuredReward, (float(self), self.metrics)


def at_last_action(scores: torch.Tensor, executed: torch.Tensor) -> torch.Tensor:
    """Give scores of whole chunks to the last action that was executed.

    Args:
        scores: float [B].
        executed: bool [B, C].

    Returns:
        float [B, C].
    """
    last = (executed.sum(-1, keepdim=True) - 1).clamp(min=0)
    placed = scores.new_zeros(executed.shape).scatter(1, last.to(scores.device), scores.unsqueeze(-1))
    return placed * executed.to(scores.device)
