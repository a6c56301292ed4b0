"""Rewards of text, for language models: one dataclass per kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rlinf.config.schema.base import ConfigSection, NonNegativeFloat, PositiveInt
from rlinf.config.schema.reward import RewardTermConfig


@dataclass(frozen=True, kw_only=True)
class TextRewardConfig(RewardTermConfig):
    """Keys of every reward of text."""


@dataclass(frozen=True, kw_only=True)
class VerdictRewardConfig(TextRewardConfig):
    """What rewards share that tell right answers from wrong ones."""

    correct_reward: float = 1.0
    """Reward of a right answer."""
    incorrect_reward: float = 0.0
    """Reward of any other."""


@dataclass(frozen=True, kw_only=True)
class SearchR1RewardConfig(VerdictRewardConfig):
    """``reward_type: searchr1``: exact match of what ``<answer>`` holds, after normalisation."""

    format_reward: float = 0.0
    """Added to a wrong answer that is given in ``<answer>`` tags as asked for."""


@dataclass(frozen=True, kw_only=True)
class VQARewardConfig(VerdictRewardConfig):
    """``reward_type: vqa``: short answers about a picture, compared as text, as a choice or as a number."""

    match: Literal["text", "choice", "number"] = "text"
    """``text``: equal after normalisation; ``choice``: the same letter; ``number``: close enough."""
    relative_tolerance: NonNegativeFloat = 0.0
    """Distance from the reference, as a share of it, that still counts as equal; with ``match: number``."""


@dataclass(frozen=True, kw_only=True)
class OverlongRewardConfig(TextRewardConfig):
    """``reward_type: overlong``: a soft punishment of answers that come close to the limit, as in DAPO."""

    max_tokens: PositiveInt
    """Length from which on the punishment is -1; ``algorithm.sampling_params.max_new_tokens``, as a rule."""
    buffer_tokens: PositiveInt
    """Tokens before that, over which the punishment falls from 0 to -1."""


@dataclass(frozen=True, kw_only=True)
class TextRewardsConfig(ConfigSection):
    """The ``reward`` section of recipes for language models."""

    group_name: str = "RewardGroup"
    """Name of the worker group."""
    rewards: dict[str, TextRewardConfig] = field(default_factory=dict)
    """Rewards by names of your choice: what is learned from is their weighted sum, each is logged by itself."""
    max_concurrency: PositiveInt = 4
    """Batches of answers that each reward judges at a time."""
