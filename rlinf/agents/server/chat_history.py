"""From the messages of a client to tokens: what was sampled keeps its tokens, however the client writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlinf.agents.chat import Reply, parse_reply
from rlinf.agents.server.dialects.dialect import ServedRequest, canonical_arguments
from rlinf.agents.template import ChatTemplate, Message, close_turn
from rlinf.data.messages.generation import Completion


@dataclass(frozen=True, slots=True, eq=False)
class _Turn:
    """A turn that clients may continue.

    Attributes:
        parent: The turn whose messages come before its own; None for the first of a conversation.
        messages: Those that follow the parent, in the client's words.
        tools: Of its request.
        reply: What the model said, as clients read it.
        text: What it wrote.
        prompt_ids: Of its prompt.
        new_ids: Of its completion.
        stop: Strings that could end it.
    """

    parent: _Turn | None
    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...]
    reply: Reply
    text: str
    prompt_ids: tuple[int, ...]
    new_ids: tuple[int, ...]
    stop: tuple[str, ...]

    def said(self, message: Message) -> bool:
        """Return whether a message of a client is this turn's reply."""
        calls = reply_message(self.reply).get("tool_calls", ())
        if message["role"] != "assistant" or message.get("tool_calls", ()) != calls:
            return False
        content = message["content"].strip()
        if calls and not content:
            return True  # some clients leave out what was said beside a call
        ends = ("", *self.stop)
        return content in {self.text.strip(), *((self.reply.text + end).strip() for end in ends)}


@dataclass(frozen=True, slots=True)
class Continuation:
    """Tokens of a prompt, and which turn they continue.

    Attributes:
        prompt_ids: [P].
        parent: The turn; None where the prompt was rendered as a whole.
        num_known: How many messages lie up to the end of that turn.
    """

    prompt_ids: tuple[int, ...]
    parent: _Turn | None
    num_known: int


class History:
    """What the clients of an episode have requested.

    A request whose messages begin with those of an earlier one and with its reply continues the tokens that were
    sampled; what is compared are normal forms, so that a client may write arguments anew, leave out thoughts, or repeat
    the stop string. Any other request is rendered as a whole.

    Args:
        template: Renders messages.
    """

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        # A parent before its children.
        self._turns: list[_Turn] = []

    def prompt(self, request: ServedRequest) -> Continuation:
        """Return the tokens of a request's prompt.

        Raises:
            AgentError: The chat template refuses the messages.
        """
        if request.messages is None:
            return self._plain_prompt(request.prompt)
        ends = self._known(request.messages, request.tools)
        if not ends:
            rendered = self._template.prompt([_readable(each) for each in request.messages], request.tools)
            return Continuation(tuple(rendered), None, 0)
        parent = max(reversed(ends), key=lambda turn: ends[turn])
        messages = [_readable(each) for each in request.messages]
        count = ends[parent]
        tail = self._template.tail(messages[:count], messages[count:], request.tools)
        closing = close_turn(parent.new_ids, tail)
        return Continuation((*parent.prompt_ids, *parent.new_ids, *closing), parent, count)

    def add(
        self, request: ServedRequest, prompt: Continuation, completion: Completion, number: int
    ) -> tuple[Reply, str]:
        """Keep a turn; return it as clients read it, and the stop string that ended it.

        Args:
            request: What was requested.
            prompt: What ``prompt`` returned for it.
            completion: Its completion.
            number: Of the turn within the episode.
        """
        text = self._template.decode(completion.token_ids)
        reply = read_completion(text, request, completion, number)
        self._turns.append(
            _Turn(
                parent=prompt.parent,
                messages=(request.messages or ())[prompt.num_known :],
                tools=request.tools,
                reply=reply,
                text=text,
                prompt_ids=prompt.prompt_ids,
                new_ids=tuple(completion.token_ids),
                stop=request.stop,
            )
        )
        return reply, ended_by(text, request, completion)

    def _known(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> dict[_Turn, int]:
        """Return the turns that a conversation continues, each with the number of messages up to its reply."""
        ends: dict[_Turn, int] = {}
        for turn in self._turns:
            begin = 0 if turn.parent is None else ends.get(turn.parent)
            if begin is None or not turn.messages or tuple(turn.tools) != tuple(tools):
                continue
            end = begin + len(turn.messages)
            if tuple(messages[begin:end]) == turn.messages and end < len(messages) and turn.said(messages[end]):
                ends[turn] = end + 1
        return ends

    def _plain_prompt(self, prompt: str | tuple[int, ...]) -> Continuation:
        """Return the tokens of a prompt that is no conversation; a text may begin with that of a turn."""
        if not isinstance(prompt, str):
            return Continuation(prompt, None, 0)
        tokenizer = self._template.tokenizer
        for turn in sorted(self._turns, key=lambda turn: -len(turn.prompt_ids) - len(turn.new_ids)):
            for new_text in (tokenizer.decode(list(turn.new_ids)), turn.text, turn.reply.text):
                before = tokenizer.decode(list(turn.prompt_ids)) + new_text
                if not turn.messages and new_text and prompt.startswith(before):
                    rest = tokenizer.encode(prompt[len(before) :], add_special_tokens=False)
                    return Continuation((*turn.prompt_ids, *turn.new_ids, *rest), None, 0)
        return Continuation(tuple(tokenizer.encode(prompt, add_special_tokens=False)), None, 0)


def ended_by(text: str, request: ServedRequest, completion: Completion) -> str:
    """Return the request's stop string that ended a completion; an empty one where none did.

    Args:
        text: What the model wrote.
        request: What was requested.
        completion: Why it ended.
    """
    found = [stop for stop in request.stop if completion.finish_reason == "stop" and stop in text]
    return min(found, key=text.rfind, default="")


def read_completion(text: str, request: ServedRequest, completion: Completion, number: int) -> Reply:
    """Return what the model wrote as clients read it.

    A reply with a call that cannot be read is text as a whole, as is one to a request without tools, or of no
    conversation. The stop string of the request that ended it is left out.

    Args:
        text: What it wrote, special tokens left out.
        request: What was requested.
        completion: Why it ended.
        number: Of the turn within the episode.
    """
    stop = ended_by(text, request, completion)
    said = text[: text.rfind(stop)] if stop else text
    if request.messages is None:
        return Reply(text=said, reasoning="", tool_calls=(), finish_reason=completion.finish_reason, turn=number)
    reply = parse_reply(said, turn=number, finish_reason=completion.finish_reason)
    if request.tools and not any(call.error for call in reply.tool_calls):
        return reply
    return parse_reply(said, turn=number, finish_reason=completion.finish_reason, with_calls=False)


def _readable(message: Message) -> Message:
    """Return a message as templates render it: calls as the model writes them, as part of the content."""
    calls = message.get("tool_calls", ())
    if not calls:
        return message
    written = [f'<tool_call>\n{{"name": "{name}", "arguments": {given}}}\n</tool_call>' for name, given in calls]
    return {"role": "assistant", "content": "\n".join([*filter(None, [message["content"]]), *written])}


def reply_message(reply: Reply) -> Message:
    """Return a reply as a message in normal form."""
    calls = tuple((call.name, canonical_arguments(dict(call.arguments))) for call in reply.tool_calls)
    return {"role": "assistant", "content": reply.text, **({"tool_calls": calls} if calls else {})}
