"""Faults of conversations: chat templates, the tokens behind a turn, and replies that are read."""

from __future__ import annotations

from tests.mutation.fault import Fault

_TEMPLATE = "tests/unit/agents/test_template.py"
_CHAT = "tests/unit/agents/test_chat.py"


def _fault(file: str, before: str, after: str, what: str, *tests: str) -> Fault:
    return Fault(f"rlinf/{file}", before, after, tests, what)


FAULTS: list[Fault] = [
    # Chat templates
    _fault(
        "agents/template.py",
        "None if tokenizer.clean_up_tokenization_spaces else",
        "None if False else",
        "spaces before punctuation are not cleaned up as transformers does",
        _TEMPLATE,
    ),
    _fault(
        "agents/template.py",
        "return str(self._decode(list(token_ids), skip_special_tokens=True))",
        "return str(self._decode(list(token_ids), skip_special_tokens=False))",
        "special tokens are part of what a turn says",
        _TEMPLATE,
        _CHAT,
    ),
    _fault(
        "agents/template.py",
        "if token_ids[-count] == tail[0] and",
        "if token_ids[-1] == tail[0] and",
        "the end of a turn is taken for its first token alone",
        _TEMPLATE,
        _CHAT,
    ),
    _fault(
        "agents/recorder.py",
        "if left.tobytes() == right.tobytes() else int((left != right).argmax())",
        "if left[:1].tobytes() == right[:1].tobytes() else int((left != right).argmax())",
        "a prompt that begins like a recorded turn counts as its continuation",
        "tests/unit/agents/test_recorder.py",
    ),
    _fault(
        "agents/template.py",
        "split_special_tokens=is_plain",
        "split_special_tokens=False",
        "text of tools forges special tokens",
        _TEMPLATE,
    ),
    _fault(
        "agents/template.py",
        "tokens += encode(part, is_plain)",
        "tokens += encode(part, False)",
        "what is kept of a text does not tell content from template",
        _TEMPLATE,
    ),
    _fault(
        "agents/template.py",
        "encode = self._tokens if len(part) > _CACHED_CHARS else self._known_tokens",
        "encode = self._known_tokens",
        "texts of any length are kept",
        _TEMPLATE,
    ),
    _fault(
        "agents/template.py",
        "            return tail[count:]\n",
        "            return tail\n",
        "a turn that ended by itself is closed twice",
        _TEMPLATE,
        _CHAT,
    ),
    _fault(
        "agents/template.py",
        'if not text.endswith(f"Yes.{tail}"):',
        "if not text.endswith(tail):",
        "a template whose tail depends on the turn passes the check",
        _TEMPLATE,
    ),
    _fault(
        "agents/template.py",
        "if not found or _SENTINEL in before:",
        "if False:",
        "a template that does not write the content of a turn passes",
        _TEMPLATE,
    ),
    _fault(
        "agents/template.py",
        "tools=[dict(tool) for tool in tools] or None,",
        "tools=None,",
        "the model does not see its tools",
        "tests/unit/agents/workflows/test_tool_loop.py",
    ),
    # Replies
    _fault(
        "agents/chat.py",
        "value, end = _JSON.raw_decode(text, start)",
        "value, end = _JSON.raw_decode(text.partition(_CALL_CLOSES)[0], start)",
        "a closing tag within a string ends a call",
        _CHAT,
    ),
    _fault(
        "agents/chat.py",
        "except (ValueError, RecursionError) as error:",
        "except ValueError as error:",
        "a call that is nested deeply ends the episode",
        _CHAT,
    ),
    _fault(
        "agents/chat.py",
        "error_text = None if closing else",
        "error_text = None if True else",
        "a call that was cut off is made",
        _CHAT,
    ),
    _fault(
        "agents/chat.py",
        "        self._token_ids += completion.token_ids\n",
        "        self._token_ids += self._template.tokenizer.encode(\n"
        "            self._template.tokenizer.decode(list(completion.token_ids)), add_special_tokens=False\n"
        "        )\n",
        "the text of a turn is encoded again",
        _CHAT,
    ),
]
