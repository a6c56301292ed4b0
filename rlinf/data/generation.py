"""Messages between those who want text and the engines that generate it: tokens in, tokens out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length", "abort"]
"""``stop``: the model ended its answer (an end token or a stop string); ``length``: ``max_new_tokens`` or the engine's
context were used up; ``abort``: somebody ended it, and what had been generated so far is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are drawn; every field reaches the engine, or the engine refuses the request.

    Attributes:
        temperature: Divides the logits; 0 takes the most likely token.
        top_k: Draw among so many of the most likely tokens; -1 among all.
        top_p: Draw among the most likely tokens that together reach this probability.
        min_p: Leave out tokens less likely than this times the most likely one.
        repetition_penalty: Divides positive and multiplies negative logits of tokens that prompt or answer contain.
        max_new_tokens: Most tokens of an answer.
        min_new_tokens: Tokens before the answer may end.
        stop: Strings that end the answer; they stay part of it, as tokens cannot be cut.
        stop_token_ids: Tokens that end the answer beside the model's own end tokens; they stay part of it.
        ignore_eos: Go on after the model's own end tokens.
        n: Answers to each prompt.
        seed: Makes the draws of a request repeatable on one engine; None draws anew each time.
    """

    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    max_new_tokens: int = 128
    min_new_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    n: int = 1
    seed: int | None = None

    @property
    def truncates(self) -> bool:
        """Whether tokens are drawn from a part of the vocabulary only; end tokens may be what is left out."""
        narrowed = self.top_k > 0 or self.top_p < 1 or self.min_p > 0
        return self.min_new_tokens > 0 or (self.temperature > 0 and narrowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """A prompt to be continued.

    Attributes:
        request_id: Unique among the requests that one engine holds.
        prompt_ids: Tokens of the prompt, at least one. A generation that was interrupted goes on as a request whose
            prompt ends with the tokens that were generated before.
        params: How to draw.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One answer to a request.

    The logarithms are natural. ``logprobs`` have one meaning on all engines: the probability under the distribution
    that the token was drawn from, after temperature and penalties and renormalised over the tokens that top-k, top-p,
    min-p and min_new_tokens leave. With temperature 0 they are those of the distribution at temperature 1.

    Attributes:
        token_ids: Tokens of the answer, [L]; an end token or stop string that ended it is part of it.
        logprobs: [L]; see above.
        full_logprobs: [L]; the same over the full vocabulary (after temperature and penalties), which training can
            reproduce. None where nothing is left out and both are equal.
        versions: [L]; version of the weights that each token was drawn with.
        finish_reason: Why it ended.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    full_logprobs: tuple[float, ...] | None = None
    versions: tuple[int, ...]
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationResult:
    """The answers to a request.

    Attributes:
        request_id: The request's.
        completions: ``params.n`` answers.
    """

    request_id: str
    completions: tuple[Completion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """What an engine is doing.

    Attributes:
        num_running: Answers that are being generated.
        num_waiting: Answers that wait for room, or for the engine to resume.
        num_generated_tokens: Tokens generated since the engine started.
        version: Version of its weights.
    """

    num_running: int
    num_waiting: int
    num_generated_tokens: int
    version: int
