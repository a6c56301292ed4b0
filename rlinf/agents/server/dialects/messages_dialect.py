"""``POST /v1/messages``, the protocol of Anthropic's clients."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from rlinf.agents.server.dialects.dialect import (
    Dialect,
    Event,
    RequestError,
    ServedRequest,
    ServedTurn,
    normal_content,
    normal_message,
    read_limit,
    read_stop,
)
from rlinf.agents.template import Message
from rlinf.agents.tools.base import ToolSchema

_THOUGHTS = ("thinking", "redacted_thinking")


class MessagesDialect(Dialect):
    """Messages made of blocks."""

    path: ClassVar[str] = "/v1/messages"
    ends_with_done: ClassVar[bool] = False
    sampling_keys: ClassVar[tuple[str, ...]] = ("temperature", "top_p", "top_k")

    def read(self, body: Mapping[str, Any]) -> ServedRequest:
        """See ``Dialect``."""
        limit = read_limit(body, "max_tokens")
        if limit is None:
            raise RequestError("max_tokens: the protocol requires it. Give the most tokens of the reply.")
        given = body.get("messages")
        if not isinstance(given, list) or not given or not all(isinstance(each, Mapping) for each in given):
            raise RequestError("messages: expected a list of messages, one at least.")
        system = [{"role": "system", "content": body["system"]}] if body.get("system") else []
        choice = (body.get("tool_choice") or {}).get("type", "auto")
        ignored = self.ignored(body)
        if choice not in ("auto", "none"):
            ignored = (*ignored, "tool_choice")
        if (body.get("thinking") or {}).get("type", "disabled") != "disabled":
            ignored = (*ignored, "thinking")
        return ServedRequest(
            messages=tuple(normal_message(each) for each in system) + tuple(_messages(given)),
            tools=() if choice == "none" else tuple(_schema(tool) for tool in body.get("tools") or ()),
            max_new_tokens=limit,
            stop=read_stop({"stop": body.get("stop_sequences")}),
            is_streamed=bool(body.get("stream")),
            ignored=ignored,
        )

    def write(self, turn: ServedTurn) -> Mapping[str, Any]:
        """See ``Dialect``."""
        return {**_head(turn, turn.num_new_tokens), "content": _blocks(turn), **_end(turn)}

    def events(self, turn: ServedTurn, request: ServedRequest) -> Iterator[Event]:
        """See ``Dialect``."""
        begun = {**_head(turn, 0), "content": [], "stop_reason": None, "stop_sequence": None}
        yield _event("message_start", message=begun)
        for index, block in enumerate(_blocks(turn)):
            empty, delta = _streamed(block)
            yield _event("content_block_start", index=index, content_block=empty)
            yield _event("content_block_delta", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        yield _event("message_delta", delta=_end(turn), usage={"output_tokens": turn.num_new_tokens})
        yield _event("message_stop")


def _messages(given: Sequence[Mapping[str, Any]]) -> Iterator[Message]:
    """Return messages in normal form: results of tools, which come as blocks of a user, are messages of their own."""
    for message in given:
        content = message.get("content")
        if isinstance(content, str):
            yield normal_message(message)
            continue
        rest, calls = [], []
        for block in content or ():
            kind = block.get("type")
            if kind == "tool_result":
                result = normal_content(block.get("content"))
                yield normal_message({"role": "tool", "content": result, "tool_call_id": block.get("tool_use_id")})
            elif kind == "tool_use":
                calls.append({"name": block.get("name"), "arguments": block.get("input")})
            elif kind not in _THOUGHTS:
                rest.append(block)
        if rest or calls:
            yield normal_message({"role": message.get("role"), "content": rest, "tool_calls": calls})


def _schema(tool: Any) -> ToolSchema:
    if not isinstance(tool, Mapping) or tool.get("type", "custom") != "custom" or "input_schema" not in tool:
        raise RequestError(f"tools: received {str(tool)[:80]}; the model calls the client's own tools alone.")
    found = {key: tool[key] for key in ("name", "description") if tool.get(key) is not None}
    return {"type": "function", "function": {**found, "parameters": tool["input_schema"]}}


def _head(turn: ServedTurn, num_new_tokens: int) -> dict[str, Any]:
    usage = {"input_tokens": turn.num_prompt_tokens, "output_tokens": num_new_tokens}
    return {"id": f"msg_{turn.id}", "type": "message", "role": "assistant", "model": turn.model, "usage": usage}


def _end(turn: ServedTurn) -> dict[str, Any]:
    reason = {"length": "max_tokens", "tool_calls": "tool_use"}.get(turn.finish_reason, "end_turn")
    if turn.stop and reason == "end_turn":
        reason = "stop_sequence"
    return {"stop_reason": reason, "stop_sequence": turn.stop or None}


def _blocks(turn: ServedTurn) -> list[dict[str, Any]]:
    reply = turn.reply
    blocks: list[dict[str, Any]] = []
    if reply.reasoning:
        blocks.append({"type": "thinking", "thinking": reply.reasoning, "signature": ""})
    if reply.text or not reply.tool_calls:
        blocks.append({"type": "text", "text": reply.text, "citations": None})
    for call in reply.tool_calls:
        blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": dict(call.arguments)})
    return blocks


def _streamed(block: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a block as it begins, and what is added to it."""
    if block["type"] == "tool_use":
        return {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    key = block["type"]
    return {**block, key: ""}, {"type": f"{key}_delta", key: block[key]}


def _event(kind: str, **content: Any) -> Event:
    return kind, {"type": kind, **content}
