"""Requests to generation engines and their results: prompt tokens in, response tokens out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from rlinf.config.schema.generation import SamplingConfig
from rlinf.data.prompt_images import Images

RouteArray: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
"""uint8 or int32 [tokens, layers, chosen]: which experts tokens went to, numbered from 1; 0 where that is not known."""

FinishReason = Literal["stop", "length", "abort"]
"""``stop``: the model ended its response (an end token or a stop string); ``length``: ``max_new_tokens`` or the
engine's context were used up; ``abort``: it was aborted, and the result holds the tokens so far."""


# Without slots: pickle writes a dataclass that has them by Python code, for every prompt that the driver submits.
@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How tokens are sampled; every field reaches the engine, or the engine refuses the request.

    Attributes:
        temperature: Divides the logits; 0 takes the most likely token.
        top_k: Sample from this many of the most likely tokens; -1 from all.
        top_p: Sample from the most likely tokens that together reach this probability.
        min_p: Leave out tokens less likely than this times the most likely one.
        repetition_penalty: Divides positive and multiplies negative logits of tokens that prompt or response contain.
        max_new_tokens: Most tokens of a response.
        min_new_tokens: Tokens before the response may end.
        stop: Strings that end the response; they stay part of it, as tokens cannot be cut.
        stop_token_ids: Tokens that end the response, next to the model's own end tokens; they stay part of it.
        ignore_eos: Continue after the model's own end tokens.
        n: Responses to each prompt.
        seed: Makes a request repeatable on one engine; None samples anew each time.
        first_index: Of requests with a seed: response ``i`` is sampled as number ``first_index + i`` of it, so that
            several requests sample what one of more responses does.
    """

    plain_fields: ClassVar[tuple[str, ...]] = ()

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
    first_index: int = 0

    @classmethod
    def of(cls, cfg: SamplingConfig, *, n: int, greedy: bool = False) -> SamplingParams:
        """Return what a recipe says about sampling.

        Args:
            cfg: ``algorithm.sampling_params``.
            n: Responses to each prompt.
            greedy: Take the most likely tokens.
        """
        return cls(
            temperature=0.0 if greedy else cfg.temperature,
            top_k=-1 if greedy else cfg.top_k,
            top_p=1.0 if greedy else cfg.top_p,
            min_p=0.0 if greedy else cfg.min_p,
            repetition_penalty=cfg.repetition_penalty,
            max_new_tokens=cfg.max_new_tokens,
            min_new_tokens=cfg.min_new_tokens,
            stop=tuple(cfg.stop),
            stop_token_ids=tuple(cfg.stop_token_ids),
            n=n,
        )

    @property
    def truncates(self) -> bool:
        """Whether tokens are sampled from a part of the vocabulary; the suppressed tokens may be end tokens."""
        filters = self.top_k > 0 or self.top_p < 1 or self.min_p > 0
        return self.min_new_tokens > 0 or (self.temperature > 0 and filters)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """A prompt to be continued.

    Attributes:
        request_id: Unique among the requests that one engine holds.
        prompt_ids: Tokens of the prompt, at least one. An interrupted generation continues as a request whose
            prompt ends with the tokens that were generated before.
        params: How to sample.
        prefix_group: Requests with equal names share a prefix; routers send them to one engine, whose cache has it.
            Empty names none.
        images: Encoded images, whose placeholders ``prompt_ids`` holds expanded.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    prefix_group: str = ""
    images: Images = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One response to a request.

    The logarithms are natural. ``logprobs`` have one meaning on all engines: the probability under the distribution
    that the token was sampled from, after temperature and penalties and renormalised over the tokens that top-k, top-p,
    min-p and min_new_tokens leave. With temperature 0 they are those of the distribution at temperature 1.

    Attributes:
        token_ids: Tokens of the response, [L]; an end token or stop string that ended it is part of it.
        logprobs: [L]; see above.
        full_logprobs: [L]; the same over the full vocabulary (after temperature and penalties), which training can
            reproduce. None where nothing is left out and both are equal.
        versions: [L]; version of the weights that sampled each token.
        finish_reason: Why it ended.
        routes: [P + L - 1 or fewer, layers, chosen]; which experts the tokens of prompt and response went to when the
            engine first computed them, from the prompt's first token on. The last sampled token was never computed.
            None unless the engine was built to return them.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    full_logprobs: tuple[float, ...] | None = None
    versions: tuple[int, ...]
    finish_reason: FinishReason
    routes: RouteArray | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationResult:
    """The responses to a request.

    Attributes:
        request_id: The request's.
        completions: ``params.n`` responses.
    """

    request_id: str
    completions: tuple[Completion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStats:
    """What an engine is doing.

    Attributes:
        num_running: Sequences that are being generated.
        num_waiting: Sequences that wait for a free slot, or for the engine to resume.
        num_generated_tokens: Tokens generated since the engine started.
        version: Version of its weights.
    """

    num_running: int
    num_waiting: int
    num_generated_tokens: int
    version: int
