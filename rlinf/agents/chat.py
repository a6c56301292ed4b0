"""A conversation over recorded tokens, and replies of the model read as text, thoughts and calls of tools."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlinf.agents.template import ChatTemplate, Message, close_turn
from rlinf.data.messages.generation import Completion, FinishReason

_CALL_OPENS, _CALL_CLOSES = "<tool_call>", "</tool_call>"
_THOUGHT = re.compile(r"\s*<think>(.*?)(?:</think>|\Z)", re.DOTALL)
_JSON = json.JSONDecoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call of a tool as the model wrote it.

    Attributes:
        id: Distinguishes the calls of an episode.
        name: Of the tool; empty where the call cannot be read.
        arguments: By name; empty where the call cannot be read.
        error: Why it cannot be read, in words for the model; None where it can.
        text: What the model wrote.
    """

    id: str
    name: str
    arguments: Mapping[str, Any]
    error: str | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the model said in a turn.

    Attributes:
        text: Without thoughts and calls.
        reasoning: What it wrote in ``<think>``; empty if nothing.
        tool_calls: In the order in which they were written.
        finish_reason: Why it ended.
        turn: Number of the turn within the conversation, from 0.
    """

    text: str
    reasoning: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: FinishReason
    turn: int


class Chat:
    """A conversation of an episode.

    The text of a completion never becomes tokens again: the next prompt is the recorded tokens and the template's tail.

    Args:
        generate: Samples and records a completion: ``EpisodeEngine.agenerate``.
        template: Renders messages.
        messages: What has been said.
        tools: JSON schemas of the tools that the model may call.

    Attributes:
        messages: What has been said, those of the model with what it wrote as ``content``.
    """

    def __init__(
        self,
        generate: Callable[[Sequence[int]], Awaitable[Completion]],
        template: ChatTemplate,
        *,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.messages: list[Message] = list(messages)
        self._generate, self._template, self._tools = generate, template, tools
        self._token_ids = template.prompt(messages, tools)
        # The tokens of the last completion, and how many messages there were with it.
        self._last: tuple[Sequence[int], int] | None = None
        self._turn = 0

    async def reply(self) -> Reply:
        """Sample the model's next turn.

        Raises:
            ContextFullError: The context leaves no room for a token.
            TurnLimitError: The episode has used up its turns.
        """
        if self._last is not None:
            completed, count = self._last
            tail = self._template.tail(self.messages[:count], self.messages[count:], self._tools)
            self._token_ids += close_turn(completed, tail)
        completion = await self._generate(self._token_ids)
        self._token_ids += completion.token_ids
        text = self._template.decode(completion.token_ids)
        self.messages.append({"role": "assistant", "content": text})
        self._last = completion.token_ids, len(self.messages)
        reply = parse_reply(text, turn=self._turn, finish_reason=completion.finish_reason)
        self._turn += 1
        return reply

    def say(self, *messages: Message) -> None:
        """Add messages of the user or of tools; they become tokens at the next reply."""
        self.messages.extend(messages)


def parse_reply(text: str, *, turn: int = 0, finish_reason: FinishReason = "stop", with_calls: bool = True) -> Reply:
    """Read what a model wrote: thoughts in ``<think>``, calls as JSON in ``<tool_call>``, as Qwen and Hermes do.

    Any text has a reply: a call that cannot be read has an ``error``.

    Args:
        text: Special tokens left out.
        turn: See ``Reply``.
        finish_reason: See ``Reply``.
        with_calls: Whether there are tools; without, calls are text.
    """
    thought = _THOUGHT.match(text)
    reasoning, rest = (thought.group(1).strip(), text[thought.end() :]) if thought else ("", text)
    said: list[str] = []
    calls: list[ToolCall] = []
    while with_calls:
        before, opening, rest = rest.partition(_CALL_OPENS)
        said.append(before)
        if not opening:
            break
        call, rest = _read_call(rest, f"call_{turn}_{len(calls)}")
        calls.append(call)
    return Reply(
        text="".join(said if with_calls else [rest]).strip(),
        reasoning=reasoning,
        tool_calls=tuple(calls),
        finish_reason=finish_reason,
        turn=turn,
    )


def _read_call(text: str, call_id: str) -> tuple[ToolCall, str]:
    """Return the call that a text begins with, and what is behind it."""
    start = len(text) - len(text.lstrip())
    try:
        # The tag that closes the call may also be part of a string in it.
        value, end = _JSON.raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        written, _, rest = text.partition(_CALL_CLOSES)
        reason = str(error) if isinstance(error, ValueError) else "it is nested too deeply"
        return _call(call_id, written, error=f"The call is not valid JSON: {reason}"), rest
    between, closing, rest = text[end:].partition(_CALL_CLOSES)
    written = text[: end + len(between)]
    error_text = None if closing else f"{_CALL_CLOSES} is missing"
    if between.strip():
        error_text = f"There is text behind the JSON of the call: {between.strip()[:80]}"
    if error_text is None:
        error_text = _problem(value)
    if error_text is not None:
        return _call(call_id, written, error=error_text), rest
    return _call(call_id, written, name=value["name"], arguments=value.get("arguments") or {}), rest


def _problem(value: Any) -> str | None:
    if not isinstance(value, dict):
        return f"A call must be a JSON object, received {type(value).__name__}"
    if not isinstance(value.get("name"), str):
        return 'A call needs the name of a tool: {"name": ..., "arguments": {...}}'
    if not isinstance(value.get("arguments", {}) or {}, dict):
        return f"The arguments must be a JSON object, received {type(value['arguments']).__name__}"
    return None


def _call(
    call_id: str, text: str, *, name: str = "", arguments: Mapping[str, Any] | None = None, error: str | None = None
) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments or {}, error=error, text=text.strip())
