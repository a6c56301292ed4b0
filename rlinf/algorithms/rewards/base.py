"""What a reward is: of embodied RL, and of text."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from rlinf.data.answers import RewardQuery
from rlinf.data.rewards import RewardRequest


class EmbodiedReward(abc.ABC):
    """Judges chunks of actions by what came of them.

    Args:
        cfg: The entry of ``reward.rewards``.
        device: Where to compute.
    """

    def __init__(self, cfg: Any, *, device: torch.device) -> None:
        self.cfg = cfg
        self.device = device

    @abc.abstractmethod
    def __call__(self, request: RewardRequest) -> torch.Tensor:
        """Return the rewards of a chunk, float [B, C], on any device; what was not executed is masked by the caller."""

    def close(self) -> None:  # noqa: B027 - optional
        """Free what the reward holds; called once."""


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


class TextReward(abc.ABC):
    """Judges answers of a language model.

    Args:
        cfg: The entry of ``reward.rewards``.
    """

    def __init__(self, cfg: Any) -> None:
        self.cfg = cfg

    def place(self, device: torch.device) -> None:  # noqa: B027 - optional
        """Move what computes to ``device``; called once, before the first answer."""

    @abc.abstractmethod
    def __call__(self, queries: Sequence[RewardQuery]) -> list[float]:
        """Return one number for each answer, in their order; a ``MeasuredReward`` where there is more to report.

        Called from threads that may block, and from several of them at a time.

        Whatever the answer says, it is judged: an answer that cannot be parsed has earned nothing, and is no error.
        """

    def close(self) -> None:  # noqa: B027 - optional
        """Free what the reward holds; called once."""


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
