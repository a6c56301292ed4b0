"""``POST /v1/responses``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from rlinf.agents.server.dialects.dialect import (
    Dialect,
    Event,
    RequestError,
    ServedRequest,
    ServedTurn,
    arguments_json,
    canonical_arguments,
    normal_content,
    normal_message,
    read_limit,
)
from rlinf.agents.template import Message


class ResponsesDialect(Dialect):
    """Responses."""

    path: ClassVar[str] = "/v1/responses"
    ends_with_done: ClassVar[bool] = False

    def read(self, body: Mapping[str, Any]) -> ServedRequest:
        """See ``Dialect``."""
        for key in ("background", "prompt", "conversation"):
            if body.get(key):
                raise RequestError(f"{key}: the server does not do this. Leave it out.")
        items = body.get("input")
        if isinstance(items, str):
            items = [{"role": "user", "content": items}]
        if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
            raise RequestError("input: expected a text or a list of items.")
        instructions = body.get("instructions")
        system = [{"role": "system", "content": instructions}] if isinstance(instructions, str) else []
        previous = body.get("previous_response_id") or ""
        messages = tuple(_messages([*system, *items]))
        if not messages:
            raise RequestError("input: expected one item at least.")
        choice = body.get("tool_choice")
        ignored = self.ignored(body)
        if choice not in (None, "auto", "none"):
            ignored = (*ignored, "tool_choice")
        if ((body.get("text") or {}).get("format") or {}).get("type", "text") != "text":
            ignored = (*ignored, "text.format")
        return ServedRequest(
            messages=messages,
            previous=str(previous).removeprefix("resp_"),
            tools=() if choice == "none" else tuple(_schema(tool) for tool in body.get("tools") or ()),
            max_new_tokens=read_limit(body, "max_output_tokens"),
            is_streamed=bool(body.get("stream")),
            ignored=ignored,
        )

    def write(self, turn: ServedTurn) -> Mapping[str, Any]:
        """See ``Dialect``."""
        is_cut = turn.finish_reason == "length"
        return {
            **_head(turn),
            "status": "incomplete" if is_cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "output": _items(turn),
            "usage": {
                "input_tokens": turn.num_prompt_tokens,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": turn.num_new_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": turn.num_prompt_tokens + turn.num_new_tokens,
            },
        }

    def events(self, turn: ServedTurn, request: ServedRequest) -> Iterator[Event]:
        """See ``Dialect``."""
        begun = {**_head(turn), "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
        finished = self.write(turn)
        plain: list[tuple[str, dict[str, Any]]] = [
            ("response.created", {"response": begun}),
            ("response.in_progress", {"response": begun}),
        ]
        for index, item in enumerate(finished["output"]):
            plain += [(name, {"output_index": index, **data}) for name, data in _item_events(item)]
        is_cut = turn.finish_reason == "length"
        plain.append(("response.incomplete" if is_cut else "response.completed", {"response": finished}))
        for number, (name, data) in enumerate(plain):
            yield name, {"type": name, "sequence_number": number, **data}


def _messages(items: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return items as messages: the calls of a turn belong to the message of the assistant before them."""
    messages: list[Message] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "message":
            messages.append(normal_message(item))
        elif kind == "function_call":
            call = (str(item.get("name")), canonical_arguments(item.get("arguments")))
            follows = bool(messages) and messages[-1]["role"] == "assistant"
            last = messages.pop() if follows else {"role": "assistant", "content": ""}
            messages.append({**last, "tool_calls": (*last.get("tool_calls", ()), call)})
        elif kind == "function_call_output":
            result = {"role": "tool", "content": normal_content(item.get("output"))}
            messages.append({**result, "tool_call_id": str(item.get("call_id"))})
        elif kind != "reasoning":
            raise RequestError(f"input: received an item of the type {kind!r}; the model reads messages and calls.")
    return messages


def _schema(tool: Any) -> Mapping[str, Any]:
    if not isinstance(tool, Mapping) or tool.get("type") != "function":
        raise RequestError(f"tools: received {str(tool)[:80]}; the model calls functions alone.")
    return {
        "type": "function",
        "function": {key: tool[key] for key in ("name", "description", "parameters") if tool.get(key) is not None},
    }


def _head(turn: ServedTurn) -> dict[str, Any]:
    return {
        "id": f"resp_{turn.id}",
        "object": "response",
        "created_at": turn.created,
        "model": turn.model,
        "error": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
    }


def _items(turn: ServedTurn) -> list[dict[str, Any]]:
    reply, items = turn.reply, []
    status = "incomplete" if turn.finish_reason == "length" else "completed"
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        items.append({"type": "reasoning", "id": f"rs_{turn.id}", "summary": summary, "status": status})
    if reply.text or not reply.tool_calls:
        text = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        message = {"type": "message", "id": f"msg_{turn.id}", "role": "assistant", "status": status, "content": [text]}
        items.append(message)
    for number, call in enumerate(reply.tool_calls):
        items.append(
            {
                "type": "function_call",
                "id": f"fc_{turn.id}_{number}",
                "call_id": call.id,
                "name": call.name,
                "arguments": arguments_json(call),
                "status": status,
            }
        )
    return items


def _item_events(item: Mapping[str, Any]) -> Iterator[Event]:
    name = {"item_id": item["id"]}
    if item["type"] == "message":
        (part,) = item["content"]
        place = {**name, "content_index": 0}
        yield "response.output_item.added", {"item": {**item, "status": "in_progress", "content": []}}
        yield "response.content_part.added", {**place, "part": {**part, "text": ""}}
        yield "response.output_text.delta", {**place, "delta": part["text"], "logprobs": []}
        yield "response.output_text.done", {**place, "text": part["text"], "logprobs": []}
        yield "response.content_part.done", {**place, "part": part}
    elif item["type"] == "function_call":
        arguments = item["arguments"]
        yield "response.output_item.added", {"item": {**item, "status": "in_progress", "arguments": ""}}
        yield "response.function_call_arguments.delta", {**name, "delta": arguments}
        yield "response.function_call_arguments.done", {**name, "name": item["name"], "arguments": arguments}
    else:
        yield "response.output_item.added", {"item": item}
    yield "response.output_item.done", {"item": item}
