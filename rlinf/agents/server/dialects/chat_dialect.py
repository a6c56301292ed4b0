"""``POST /v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from rlinf.agents.server.dialects.dialect import (
    Dialect,
    Event,
    RequestError,
    ServedRequest,
    ServedTurn,
    arguments_json,
    normal_message,
    one_choice,
    read_limit,
    read_stop,
)


class ChatDialect(Dialect):
    """Chat completions."""

    path: ClassVar[str] = "/v1/chat/completions"

    def read(self, body: Mapping[str, Any]) -> ServedRequest:
        """See ``Dialect``."""
        one_choice(body)
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(each, Mapping) for each in messages):
            raise RequestError("messages: expected a list of messages, one at least.")
        ignored = self.ignored(body)
        if body.get("tool_choice") not in (None, "auto", "none"):
            ignored = (*ignored, "tool_choice")
        if (body.get("response_format") or {}).get("type", "text") != "text":
            ignored = (*ignored, "response_format")
        return ServedRequest(
            messages=tuple(normal_message(message) for message in messages),
            tools=() if body.get("tool_choice") == "none" else tuple(body.get("tools") or ()),
            max_new_tokens=read_limit(body, "max_completion_tokens", "max_tokens"),
            stop=read_stop(body),
            is_streamed=bool(body.get("stream")),
            include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
            ignored=ignored,
        )

    def write(self, turn: ServedTurn) -> Mapping[str, Any]:
        """See ``Dialect``."""
        choice = {"index": 0, "message": _message(turn), "finish_reason": turn.finish_reason, "logprobs": None}
        return {**_head(turn, "chat.completion"), "choices": [choice], "usage": usage(turn)}

    def events(self, turn: ServedTurn, request: ServedRequest) -> Iterator[Event]:
        """See ``Dialect``."""
        head = _head(turn, "chat.completion.chunk")
        delta = _message(turn)
        for number, call in enumerate(delta.get("tool_calls", ())):
            call["index"] = number
        for part, reason in ((delta, None), ({}, turn.finish_reason)):
            yield "", {**head, "choices": [{"index": 0, "delta": part, "finish_reason": reason, "logprobs": None}]}
        if request.include_usage:
            yield "", {**head, "choices": [], "usage": usage(turn)}


def usage(turn: ServedTurn) -> dict[str, int]:
    """Return the numbers of tokens of a turn."""
    prompt, new = turn.num_prompt_tokens, turn.num_new_tokens
    return {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}


def _head(turn: ServedTurn, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{turn.id}", "object": kind, "created": turn.created, "model": turn.model}


def _message(turn: ServedTurn) -> dict[str, Any]:
    reply = turn.reply
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or (None if reply.tool_calls else "")}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments_json(call)}}
            for call in reply.tool_calls
        ]
    return message
