"""Validation of requests, the same for every engine."""

from __future__ import annotations

import math

from rlinf.data.messages.generation import GenerationRequest
from rlinf.errors import EngineError


def check_request(request: GenerationRequest, *, max_context_tokens: int, vocab_size: int) -> None:
    """Refuse a request that no engine could serve.

    Args:
        request: The request.
        max_context_tokens: Most tokens of prompt and response together.
        vocab_size: Size of the vocabulary.

    Raises:
        EngineError: A field is out of range; the message names it, what was received and what is allowed.
    """
    p = request.params
    known = f"token ids in [0, {vocab_size})"
    finite = math.isfinite(p.temperature) and math.isfinite(p.repetition_penalty)
    checks = {
        "temperature": (p.temperature, finite and p.temperature >= 0, "a number >= 0"),
        "top_k": (p.top_k, p.top_k == -1 or p.top_k >= 1, "-1 for all tokens, or >= 1"),
        "top_p": (p.top_p, 0 < p.top_p <= 1, "a number in (0, 1]"),
        "min_p": (p.min_p, 0 <= p.min_p <= 1, "a number in [0, 1]"),
        "repetition_penalty": (p.repetition_penalty, finite and p.repetition_penalty > 0, "a number > 0"),
        "max_new_tokens": (p.max_new_tokens, p.max_new_tokens >= 1, ">= 1"),
        "min_new_tokens": (
            p.min_new_tokens,
            0 <= p.min_new_tokens <= p.max_new_tokens,
            f"from 0 to max_new_tokens = {p.max_new_tokens}",
        ),
        "stop": (p.stop, all(p.stop), "strings that are not empty"),
        "stop_token_ids": (p.stop_token_ids, _all_known(p.stop_token_ids, vocab_size), known),
        "n": (p.n, p.n >= 1, ">= 1"),
    }
    for name, (received, fits, allowed) in checks.items():
        if not fits:
            raise EngineError(
                f"Request '{request.request_id}': sampling field '{name}' is {received!r}; allowed: {allowed}."
            )
    length = len(request.prompt_ids)
    if not 0 < length < max_context_tokens:
        raise EngineError(
            f"Request '{request.request_id}': prompt_ids has {length} tokens; allowed: at least one, and fewer than "
            f"the context of {max_context_tokens} tokens. Drop long prompts, or give the engine a longer context."
        )
    if not _all_known(request.prompt_ids, vocab_size):
        raise EngineError(f"Request '{request.request_id}': prompt_ids has unknown tokens; allowed: {known}.")


def check_speculation(request: GenerationRequest, *, backend: str) -> None:
    """Refuse a request that changes the distribution in a way that verifying drafted tokens does not know of.

    Args:
        request: The request.
        backend: The engine's name.

    Raises:
        EngineError: It leaves tokens out.
    """
    if request.params.truncates:
        raise EngineError(
            f"Request '{request.request_id}': top_k, top_p, min_p and min_new_tokens cannot be combined with "
            f"speculative decoding on rollout_backend={backend}, which would report other log-probabilities. Leave "
            f"them at their defaults, or remove the speculative keys from rollout.{backend}."
        )


def _all_known(token_ids: tuple[int, ...], vocab_size: int) -> bool:
    return not token_ids or (min(token_ids) >= 0 and max(token_ids) < vocab_size)
