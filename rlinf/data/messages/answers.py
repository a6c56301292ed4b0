"""Messages of language-model RL: prompts, the responses to them, and their rewards. Nothing here is padded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlinf.data.messages.generation import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A row of a dataset.

    Attributes:
        index: Row in the dataset.
        token_ids: Tokens, chat template applied, [P].
        text: What the tokens say.
        reference: What the reward compares an answer with (a solution, tests to run); None where it needs nothing.
        metadata: Further columns that a reward may look at.
    """

    index: int
    token_ids: tuple[int, ...]
    text: str
    reference: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardQuery:
    """What a reward of text is asked about.

    Attributes:
        prompt: Text of the prompt.
        response: Text of the answer, special tokens left out.
        reference: See ``Prompt``.
        metadata: See ``Prompt``.
        num_tokens: Tokens of the answer.
        finish_reason: Why the answer ended.
    """

    prompt: str
    response: str
    reference: Any = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    num_tokens: int = 0
    finish_reason: FinishReason = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer as a training sample.

    Attributes:
        group_id: Number of the prompt within the run: all answers to it in one step share it, and stay together.
        member: Number of the answer within its group.
        prompt: What was asked.
        token_ids: Tokens of the answer, [L]; at least one.
        logprobs: float [L]; log-probability of each under the distribution it was drawn from (``Completion``).
        versions: int [L]; version of the weights that drew it.
        loss_mask: bool [L]; false for tokens that are not the model's own, such as a tool's.
        finish_reason: Why it ended.
        reward: Its total reward; 0 until it is rewarded.
        reward_terms: Its score by each reward, unweighted.
        reward_metrics: What rewards measured while they scored it, as ``<name of the reward>_<metric>``.
        text: What the tokens say.
        trainer_logprobs: float [L]; log-probability of each by the trainer's code, under the weights that drew it;
            empty unless an inference group has computed them.
    """

    group_id: int
    member: int
    prompt: Prompt
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    loss_mask: tuple[bool, ...]
    finish_reason: FinishReason
    reward: float = 0.0
    reward_terms: Mapping[str, float] = field(default_factory=dict)
    reward_metrics: Mapping[str, float] = field(default_factory=dict)
    text: str = ""
    trainer_logprobs: tuple[float, ...] = ()
