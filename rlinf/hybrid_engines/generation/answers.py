"""An answer in the making: what an engine must know to go on with it, and when it ends."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from rlinf.data.generation import Completion, FinishReason, SamplingParams

Decode = Callable[[list[int]], str]
"""Turns tokens into text, special ones included."""

_TOKENS_PER_CHARACTER = 4
"""A character takes at most four bytes, and a token is at least one."""

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""What decoders write for bytes that are no character."""


@dataclass(slots=True, kw_only=True, eq=False)
class Answer:
    """One of the answers to a request.

    Attributes:
        key: Names the answer while a backend generates it; a new one each time that it is taken up.
        request_id: Of the request.
        prompt_ids: Tokens of the prompt.
        params: How to draw.
        limit: Most tokens of the answer, given ``max_new_tokens`` and the context.
        end_ids: Tokens that end it.
        seed: Of its draws; equal to no other's unless the request asked for it.
        decode: Needed for stop strings.
        token_ids: Tokens so far, [L].
        logprobs: See ``Completion``.
        full_logprobs: See ``Completion``; empty where they are not kept.
        versions: See ``Completion``.
        finish_reason: None while it is going on.
    """

    key: int
    request_id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    limit: int
    end_ids: frozenset[int]
    seed: int
    decode: Decode | None = None
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    full_logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None

    @property
    def context(self) -> list[int]:
        """Prompt and answer so far."""
        return [*self.prompt_ids, *self.token_ids]

    @property
    def may_end(self) -> bool:
        """Whether the next token may end the answer."""
        return len(self.token_ids) >= self.params.min_new_tokens

    def append(self, token_id: int, logprob: float, full_logprob: float, version: int) -> None:
        """Add a token, and note the finish reason if it was the last one.

        Args:
            token_id: What was drawn.
            logprob: Of the token; see ``Completion``.
            full_logprob: Ignored where all tokens could be drawn.
            version: Of the weights.
        """
        may_end = self.may_end
        self.token_ids.append(token_id)
        self.logprobs.append(logprob)
        self.versions.append(version)
        if self.params.truncates:
            self.full_logprobs.append(full_logprob)
        if may_end and (token_id in self.end_ids or (self.params.stop and self._ends_with_stop_string())):
            self.finish_reason = "stop"
        elif len(self.token_ids) >= self.limit:
            self.finish_reason = "length"

    def completion(self) -> Completion:
        """Return the finished answer."""
        assert self.finish_reason is not None
        return Completion(
            token_ids=tuple(self.token_ids),
            logprobs=tuple(self.logprobs),
            full_logprobs=tuple(self.full_logprobs) if self.params.truncates else None,
            versions=tuple(self.versions),
            finish_reason=self.finish_reason,
        )

    def _ends_with_stop_string(self) -> bool:
        """Tell whether the last token completes a stop string, perhaps in its middle."""
        assert self.decode is not None
        longest = max(map(len, self.params.stop))
        tail = self.token_ids[-(_TOKENS_PER_CHARACTER * longest + 1) :]
        # Bytes at the end that are no character yet are replaced as they are decoded, and will be read again.
        text, before = self.decode(tail), len(self.decode(tail[:-1]).rstrip(_REPLACEMENT))
        return any(text.find(stop, max(0, before - len(stop) + 1)) >= 0 for stop in self.params.stop)


def derive_seed(*parts: int) -> int:
    """Return a number in [0, 2**63) that belongs to these numbers in this order."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
