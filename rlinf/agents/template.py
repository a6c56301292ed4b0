"""Chat templates: the tokens of an episode's first prompt, and those that a template puts behind a recorded turn."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from rlinf.errors import AgentError

Message: TypeAlias = "Mapping[str, Any]"
"""A message as chat templates read it: ``role``, ``content``, and what a role has in addition."""

_SENTINEL = "sentinel7f3a"
"""Stands for the content of the last turn: letters and digits, which no template rewrites."""
_CACHED_TEXTS, _CACHED_CHARS = 1024, 1024
"""Parts of conversations whose tokens are kept, and how long each may be: templates repeat theirs in every turn."""
_REMEDY = "Give another template as agent.chat_template: a file in Jinja2."


class ChatTemplate:
    """A tokenizer with its chat template.

    The prompt behind a turn is the recorded tokens and a *tail*: what the template puts behind the content of the
    assistant's message, from the end of the turn to the begin of the next. No text of a completion is encoded again.

    Args:
        tokenizer: Of transformers.
        path: File of another chat template; None takes the tokenizer's.

    Raises:
        AgentError: There is no template.
    """

    def __init__(self, tokenizer: Any, path: str | None = None) -> None:
        self.tokenizer = tokenizer
        self._source: str | None = tokenizer.chat_template
        if path is not None:
            try:
                self._source = Path(path).expanduser().read_text(encoding="utf-8")
            except OSError as error:
                raise AgentError(f"agent.chat_template: cannot be read: {error}. Correct the path.") from error
        if self._source is None:
            raise AgentError(f"The tokenizer has no chat template. {_REMEDY}")
        self._name = path or "the tokenizer's chat template"
        self._special = tuple(dict.fromkeys(tokenizer.all_special_tokens))
        self._mark = secrets.token_hex(8)  # of contents while they are rendered: none can spell it
        backend = None if tokenizer.clean_up_tokenization_spaces else getattr(tokenizer, "backend_tokenizer", None)
        # Without what transformers looks at in each token, which takes longer than to decode it.
        self._decode: Callable[..., str] = tokenizer.decode if backend is None else backend.decode
        self._known_tokens = functools.lru_cache(_CACHED_TEXTS)(self._tokens)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of a completion, special tokens left out."""
        return str(self._decode(list(token_ids), skip_special_tokens=True))

    def prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Return the tokens of a conversation that the assistant is to continue.

        Args:
            messages: The conversation.
            tools: JSON schemas of the tools that the model may call.

        Raises:
            AgentError: The template refuses it.
        """
        return self._encode(messages, lambda safe: self._render(safe, tools))

    def tail(
        self, messages: Sequence[Message], new: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        """Return the tokens between the content of a turn and the content of the next.

        Args:
            messages: The conversation up to the turn, which is the last of them.
            new: What follows it: messages of the user or of tools.
            tools: See ``prompt``.

        Raises:
            AgentError: The template refuses it.
        """
        turn = {"role": "assistant", "content": _SENTINEL}
        return self._encode(new, lambda safe: self._behind_sentinel([*messages[:-1], turn, *safe], tools))

    def check(self, *, roles: Sequence[str], tools: Sequence[Mapping[str, Any]] = ()) -> None:
        """Check on fixed conversations that what follows a turn does not depend on what the turn says.

        Args:
            roles: Who may speak behind a turn: ``user``, ``tool`` or both.
            tools: See ``prompt``.

        Raises:
            AgentError: It does, or the template refuses a conversation; the message names the conversation and a
                remedy.
        """
        for name, history, new in _conversations(roles):
            try:
                tail = self._behind_sentinel([*history, {"role": "assistant", "content": _SENTINEL}, *new], tools)
                for content in ("Yes.", "<think>\nWell.\n</think>\n\nYes."):
                    text = self._render([*history, {"role": "assistant", "content": content}, *new], tools)
                    if not text.endswith(f"Yes.{tail}"):
                        raise AgentError(
                            f"{self._name} puts {tail!r} behind the content of a turn, or something else, by what the "
                            f"turn says: {text[-200:]!r}. {_REMEDY}"
                        )
            except AgentError as error:
                raise AgentError(f"A conversation with {name} cannot be continued: {error}") from error

    def _behind_sentinel(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str:
        before, found, tail = self._render(messages, tools).rpartition(_SENTINEL)
        if not found or _SENTINEL in before:
            raise AgentError(f"{self._name} does not write the content of a turn once. {_REMEDY}")
        return tail

    def _render(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> str:
        try:
            text: str = self.tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tools=[dict(tool) for tool in tools] or None,
                chat_template=self._source,
                tokenize=False,
                add_generation_prompt=True,
            )
        except Exception as error:  # a template is a program of its own
            raise AgentError(f"{self._name} refuses it: {type(error).__name__}: {error}. {_REMEDY}") from error
        return text

    def _encode(self, messages: Sequence[Message], render: Callable[[Sequence[Message]], str]) -> list[int]:
        """Return the tokens of rendered messages; special tokens that their content spells stay plain text."""
        contents: dict[str, str] = {}

        def guarded(message: Message) -> Message:
            content = message.get("content")
            if not isinstance(content, str) or not any(token in content for token in self._special):
                return message
            name = f"{self._mark}x{len(contents)}x"
            contents[name] = content
            return {**message, "content": name}

        text = render([guarded(message) for message in messages])
        tokens: list[int] = []
        for part, is_plain in _parts(text, contents):
            encode = self._tokens if len(part) > _CACHED_CHARS else self._known_tokens
            tokens += encode(part, is_plain)
        return tokens

    def _tokens(self, text: str, is_plain: bool) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=is_plain))


def close_turn(token_ids: Sequence[int], tail: Sequence[int]) -> Sequence[int]:
    """Return a tail without the tokens that a completion ends with already: an end token, as a rule.

    Args:
        token_ids: The completion.
        tail: What the template puts behind its content.
    """
    for count in range(min(len(token_ids), len(tail)), 0, -1):
        if token_ids[-count] == tail[0] and list(token_ids[-count:]) == list(tail[:count]):
            return tail[count:]
    return tail


def _parts(text: str, contents: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a rendered text, each with whether it is content that stays plain."""
    for name, content in contents.items():
        before, _, text = text.partition(name)
        yield before, False
        yield content, True
    yield text, False


def _conversations(roles: Sequence[str]) -> Iterator[tuple[str, list[Message], list[Message]]]:
    """Yield conversations that templates may treat differently: a name, what comes before a turn, and behind it."""
    question = {"role": "user", "content": "Question?"}
    histories: dict[str, list[Message]] = {
        "a user's message": [question],
        "a system message": [{"role": "system", "content": "System."}, question],
        "an earlier turn": [question, {"role": "assistant", "content": "No."}, question],
    }
    result = {"role": "tool", "name": "tool", "tool_call_id": "call00001", "content": "Result."}
    behind: dict[str, list[Message]] = {"user": [question], "tool": [result]}
    for role in roles:
        for name, history in histories.items():
            yield f"{name}, continued by the role {role}", history, behind[role]
    if "tool" in roles:
        yield "two results of tools", [question], [result, result]
