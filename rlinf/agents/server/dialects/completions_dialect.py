"""``POST /v1/completions``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from rlinf.agents.server.dialects.chat_dialect import usage
from rlinf.agents.server.dialects.dialect import (
    Dialect,
    Event,
    RequestError,
    ServedRequest,
    ServedTurn,
    one_choice,
    read_limit,
    read_stop,
)


class CompletionsDialect(Dialect):
    """Completions of a text or of tokens."""

    path: ClassVar[str] = "/v1/completions"

    def read(self, body: Mapping[str, Any]) -> ServedRequest:
        """See ``Dialect``."""
        one_choice(body)
        for key in ("suffix", "echo"):
            if body.get(key):
                raise RequestError(f"{key}: received {body[key]!r}; a completion follows its prompt. Leave it out.")
        return ServedRequest(
            prompt=_prompt(body.get("prompt")),
            max_new_tokens=read_limit(body, "max_tokens"),
            stop=read_stop(body),
            is_streamed=bool(body.get("stream")),
            include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
            ignored=self.ignored(body),
        )

    def write(self, turn: ServedTurn) -> Mapping[str, Any]:
        """See ``Dialect``."""
        return {**_head(turn), "choices": [_choice(turn.reply.text, turn.finish_reason)], "usage": usage(turn)}

    def events(self, turn: ServedTurn, request: ServedRequest) -> Iterator[Event]:
        """See ``Dialect``."""
        for text, reason in ((turn.reply.text, None), ("", turn.finish_reason)):
            yield "", {**_head(turn), "choices": [_choice(text, reason)]}
        if request.include_usage:
            yield "", {**_head(turn), "choices": [], "usage": usage(turn)}


def _prompt(prompt: Any) -> str | tuple[int, ...]:
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        (prompt,) = prompt
    if isinstance(prompt, list) and prompt and all(type(token) is int and 0 <= token < 1 << 31 for token in prompt):
        return tuple(prompt)
    if isinstance(prompt, str) and prompt:
        return prompt
    raise RequestError(f"prompt: received {str(prompt)[:80]!r}; expected one text, or the tokens of one.")


def _head(turn: ServedTurn) -> dict[str, Any]:
    return {"id": f"cmpl-{turn.id}", "object": "text_completion", "created": turn.created, "model": turn.model}


def _choice(text: str, reason: str | None) -> dict[str, Any]:
    return {"index": 0, "text": text, "finish_reason": reason, "logprobs": None}
