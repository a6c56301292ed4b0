"""A token sequence that an engine generates, and the conditions that end it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from rlinf.data.messages.generation import Completion, FinishReason, RouteArray, SamplingParams
from rlinf.data.prompt_images import Images

Decode = Callable[[list[int]], str]
"""Turns tokens into text, special ones included."""

_TOKENS_PER_CHARACTER = 4
"""A character takes at most four bytes, and a token is at least one."""

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""What decoders write for bytes that are no character."""


@dataclass(slots=True, kw_only=True, eq=False)
class TokenSequence:
    """One response to a request, while it is generated.

    Attributes:
        key: Identifies the sequence in the model runner; a new one at each admission.
        request_id: Of the request.
        prompt_ids: Tokens of the prompt.
        params: Of the request.
        limit: Most tokens of the sequence, given ``max_new_tokens`` and the context.
        end_ids: Tokens that end it.
        seed: Of its random numbers; unique unless the request has a seed.
        decode: Needed for stop strings.
        images: Of the prompt.
        token_ids: Tokens so far, [L].
        logprobs: See ``Completion``.
        full_logprobs: See ``Completion``; empty where they are not kept.
        versions: See ``Completion``.
        finish_reason: None while it is running.
        routes: Parts of those of ``Completion``, end to end; empty where they are not recorded.
        num_routes: Tokens of them.
    """

    key: int
    request_id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    limit: int
    end_ids: frozenset[int]
    seed: int
    decode: Decode | None = None
    images: Images = ()
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    full_logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    routes: list[RouteArray] = field(default_factory=list)
    num_routes: int = 0

    @property
    def context(self) -> list[int]:
        """Prompt and sequence so far."""
        return [*self.prompt_ids, *self.token_ids]

    @property
    def may_end(self) -> bool:
        """Whether the next token may end the sequence."""
        return len(self.token_ids) >= self.params.min_new_tokens

    def add_routes(self, routes: RouteArray) -> None:
        """Note where the last tokens of ``context`` went; called before the token that follows them is appended.

        A token keeps what is known of it: once weights have changed, the sequence so far is computed anew, and its
        tokens may go elsewhere; what was sampled behind them is of the first pass.

        Args:
            routes: [n, layers, chosen]; of the last n tokens.
        """
        length = len(self.prompt_ids) + len(self.token_ids)
        begin = length - len(routes)
        if begin > self.num_routes:
            self.routes.append(np.zeros((begin - self.num_routes, *routes.shape[1:]), dtype=routes.dtype))
        self.routes.append(routes[max(self.num_routes - begin, 0) :])
        self.num_routes = length

    def append(self, token_id: int, logprob: float, full_logprob: float, version: int) -> None:
        """Add a token, and note the finish reason if it was the last one.

        Args:
            token_id: The sampled token.
            logprob: Of the token; see ``Completion``.
            full_logprob: Ignored where no token is filtered.
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
        """Return the completion of a finished sequence."""
        assert self.finish_reason is not None
        return Completion(
            token_ids=tuple(self.token_ids),
            logprobs=tuple(self.logprobs),
            full_logprobs=tuple(self.full_logprobs) if self.params.truncates else None,
            versions=tuple(self.versions),
            finish_reason=self.finish_reason,
            routes=np.concatenate(self.routes) if self.routes else None,
        )

    def _ends_with_stop_string(self) -> bool:
        """Return whether the last token completes a stop string, perhaps in its middle."""
        assert self.decode is not None
        longest = max(map(len, self.params.stop))
        tail = self.token_ids[-(_TOKENS_PER_CHARACTER * longest + 1) :]
        # Bytes at the end that are no character yet are replaced as they are decoded, and will be read again.
        text, before = self.decode(tail), len(self.decode(tail[:-1]).rstrip(_REPLACEMENT))
        return any(text.find(stop, max(0, before - len(stop) + 1)) >= 0 for stop in self.params.stop)


def sampling_seed(*parts: int) -> int:
    """Return a hash of the numbers, in [0, 2**63)."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
