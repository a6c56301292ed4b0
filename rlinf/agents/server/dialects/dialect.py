"""The contract of dialects: how requests are read, and how completions are written."""

from __future__ import annotations

import abc
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rlinf.agents.chat import Reply, ToolCall
from rlinf.agents.template import Message
from rlinf.agents.tools.base import ToolSchema
from rlinf.errors import AgentError


class RequestError(AgentError):
    """A request that cannot be served: malformed, or for something that the server does not do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRequest:
    """What a client requests.

    Attributes:
        messages: The conversation, in normal form (``normal_message``); None where the prompt is no conversation.
        prompt: The prompt where it is no conversation: text or tokens.
        previous: Id of the completion that the messages follow; empty where they are the whole conversation.
        tools: JSON schemas of the tools that the model may call.
        max_new_tokens: Most tokens of the completion; None leaves it to the recipe.
        stop: Strings that end the completion.
        is_streamed: Whether the client wants events.
        include_usage: Whether the last event has the numbers of tokens.
        ignored: Names of the parameters that have no effect.
    """

    messages: tuple[Message, ...] | None = None
    prompt: str | tuple[int, ...] = ""
    previous: str = ""
    tools: tuple[ToolSchema, ...] = ()
    max_new_tokens: int | None = None
    stop: tuple[str, ...] = ()
    is_streamed: bool = False
    include_usage: bool = False
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTurn:
    """A completion as clients read it.

    Attributes:
        number: Of the turn within the episode.
        id: Unique among all completions of the server.
        model: Name that the request gave the model.
        created: Seconds since 1970.
        reply: Text, thoughts and calls; the text without the stop string that ended it.
        stop: That string; empty where none did.
        num_prompt_tokens: Tokens of the prompt.
        num_new_tokens: Tokens of the completion.
    """

    number: int
    id: str
    model: str
    created: int
    reply: Reply
    num_prompt_tokens: int
    num_new_tokens: int
    stop: str = ""

    @property
    def finish_reason(self) -> str:
        """Why it ended, in the words of the protocol."""
        if self.reply.finish_reason == "length":
            return "length"
        return "tool_calls" if self.reply.tool_calls else "stop"


Event = tuple[str, Mapping[str, Any]]
"""Name of an event, empty where the dialect names none, and its data."""


class Dialect(abc.ABC):
    """One protocol.

    Attributes:
        path: Route of its requests.
        ends_with_done: Whether ``data: [DONE]`` follows the last event.
        sampling_keys: Parameters that the recipe decides on; they are ignored, and counted.
    """

    path: ClassVar[str]
    ends_with_done: ClassVar[bool] = True
    sampling_keys: ClassVar[tuple[str, ...]] = (
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "seed",
        "frequency_penalty",
        "presence_penalty",
        "repetition_penalty",
        "logit_bias",
        "logprobs",
        "top_logprobs",
    )

    @abc.abstractmethod
    def read(self, body: Mapping[str, Any]) -> ServedRequest:
        """Read a request.

        Raises:
            RequestError: It is malformed, or requests what the server does not do.
        """

    @abc.abstractmethod
    def write(self, turn: ServedTurn) -> Mapping[str, Any]:
        """Return the response to a request that is not streamed."""

    @abc.abstractmethod
    def events(self, turn: ServedTurn, request: ServedRequest) -> Iterator[Event]:
        """Return the events of one that is."""

    def ignored(self, body: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the parameters of a request that have no effect."""
        given = ((key, body.get(key)) for key in self.sampling_keys)
        return tuple(key for key, value in given if value is not None and value is not False and value != {})


def event_bytes(events: Iterator[Event], *, ends_with_done: bool) -> bytes:
    """Return events as a body of ``text/event-stream``."""
    texts = [(f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n" for name, data in events]
    return "".join([*texts, "data: [DONE]\n\n" if ends_with_done else ""]).encode()


def one_choice(body: Mapping[str, Any]) -> None:
    """Check that a request wants one completion.

    Raises:
        RequestError: It wants several.
    """
    for key in ("n", "best_of"):
        if body.get(key) not in (None, 1):
            raise RequestError(f"{key}: received {body[key]!r}; a request has one completion here. Leave it out.")


def read_limit(body: Mapping[str, Any], *keys: str) -> int | None:
    """Return the first of several keys that a request has: the most tokens of its completion.

    Raises:
        RequestError: It is no positive number.
    """
    for key in keys:
        value = body.get(key)
        if value is not None:
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise RequestError(f"{key}: received {value!r}; expected a positive number.")
            return value
    return None


def read_stop(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the strings that end the completion of a request.

    Raises:
        RequestError: They are not strings.
    """
    stop = body.get("stop") or ()
    strings = (stop,) if isinstance(stop, str) else tuple(stop)
    if not all(isinstance(string, str) and string for string in strings):
        raise RequestError(f"stop: received {stop!r}; expected strings that are not empty.")
    return strings


def normal_message(message: Mapping[str, Any]) -> Message:
    """Return a message of the protocol in the form that histories are compared in, and templates render.

    Args:
        message: With ``role``, ``content`` as text, None or a list of parts, and ``tool_calls``.

    Returns:
        ``role``, ``content`` as text, ``tool_calls`` as pairs of a name and arguments as JSON with sorted keys; a
        tool's message also has ``tool_call_id`` and ``name`` if it was given them.

    Raises:
        RequestError: The message is malformed, or has images or sound.
    """
    role = message.get("role")
    if not isinstance(role, str):
        raise RequestError(f"messages: received a message without a role: {str(message)[:80]}")
    role = {"developer": "system", "function": "tool"}.get(role, role)
    normal: dict[str, Any] = {"role": role, "content": normal_content(message.get("content"))}
    calls = message.get("tool_calls") or ()
    if calls:
        normal["tool_calls"] = tuple(_call_pair(call) for call in calls)
    if role == "tool":
        normal |= {key: message[key] for key in ("tool_call_id", "name") if isinstance(message.get(key), str)}
    return normal


def normal_content(content: Any) -> str:
    """Return the text of a message's content.

    Raises:
        RequestError: A part of it is no text.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    texts = []
    for part in content:
        text = part if isinstance(part, str) else part.get("text", part.get("refusal"))
        if not isinstance(text, str):
            kind = part.get("type")
            raise RequestError(f"messages: received content of the type {kind!r}; the model reads text alone.")
        texts.append(text)
    return "".join(texts)


def canonical_arguments(arguments: Any) -> str:
    """Return the arguments of a call, as JSON or parsed, as JSON with sorted keys; text that is no JSON as it is."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return str(arguments)
    return json.dumps(arguments, sort_keys=True)


def arguments_json(call: ToolCall) -> str:
    """Return the arguments of a call as the protocol writes them."""
    return json.dumps(dict(call.arguments))


def _call_pair(call: Any) -> tuple[str, str]:
    function = call.get("function", call) if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise RequestError(f"messages: received a call of a tool without a name: {str(call)[:80]}")
    return function["name"], canonical_arguments(function.get("arguments"))
