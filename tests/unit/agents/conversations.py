"""Tokenizers with templates as model families have them, and an engine that plays what a test has written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rlinf.data.messages.generation import Completion, FinishReason, GenerationRequest
from rlinf.data.messages.responses import Prompt

END = "<|im_end|>"

_TOOLS_HEADER = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function "
    "signatures within <tools></tools> XML tags:\n<tools>"
    "{% for tool in tools %}{{ '\n' + tool | tojson }}{% endfor %}{{ '\n' }}"
    "</tools>\n\nFor each function call, return a json object with function name and arguments within "
    '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n'
    "</tool_call>"
)
_TOOL_RESULT = (
    "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}"
    "{{ '\n' }}<tool_response>\n"
    "{{ m.content }}\n</tool_response>"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{% endif %}"
)
_TURN = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
_GENERATE = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
_DEFAULT_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."

QWEN2_5 = (
    "<|im_start|>system\n{% if messages[0].role == 'system' %}{{ messages[0].content }}{% else %}"
    + _DEFAULT_SYSTEM
    + "{% endif %}{% if tools %}{{ '\n\n' }}"
    + _TOOLS_HEADER
    + "{% endif %}<|im_end|>\n{% for m in messages %}{% if m.role == 'tool' %}"
    + _TOOL_RESULT
    + "{% elif not (m.role == 'system' and loop.first) %}"
    + _TURN
    + "{% endif %}{% endfor %}"
    + _GENERATE
)
"""Renders conversations as Qwen2.5's template does."""

_VISIBLE = "{{ m.content.split('</think>')[-1].lstrip('\\n') }}"
_THOUGHT = "{{ m.content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].strip('\\n') }}"
QWEN3 = (
    "{% if tools %}<|im_start|>system\n{% if messages[0].role == 'system' %}{{ messages[0].content }}\n\n{% endif %}"
    + _TOOLS_HEADER
    + "<|im_end|>\n{% elif messages[0].role == 'system' %}<|im_start|>system\n{{ messages[0].content }}<|im_end|>\n"
    "{% endif %}{% set last = namespace(query=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set last.query = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}{% if m.role == 'tool' %}"
    + _TOOL_RESULT
    + "{% elif m.role == 'assistant' %}<|im_start|>assistant\n"
    "{% if '</think>' in m.content and loop.index0 > last.query %}<think>\n"
    + _THOUGHT
    + "\n</think>\n\n{% endif %}"
    + _VISIBLE
    + "<|im_end|>\n{% elif not (m.role == 'system' and loop.first) %}"
    + _TURN
    + "{% endif %}{% endfor %}"
    + _GENERATE
)
"""Renders conversations as Qwen3's template does: thoughts before the last message of the user are left out."""

PLAIN = (
    "{% for m in messages %}{{ m.role | upper }}: {{ m.content | trim }}{{ eos_token if m.role == 'assistant' }}\n"
    "{% endfor %}{% if add_generation_prompt %}ASSISTANT: {% endif %}"
)
"""Ends turns with a token, and begins them with text."""

BROKEN = "{% for m in messages %}{{ m.role }}:{{ m.content | length }}\n{% endfor %}"
ALTERNATING = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('Only user and assistant!') }}{% endif %}"
    + _TURN
    + "{% endfor %}"
    + _GENERATE
)
DEPENDENT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% if '<think>' in m.content %} (thought){% endif %}<|im_end|>\n{% endfor %}" + _GENERATE
)


def make_tokenizer(template: str | None, merges: Sequence[tuple[str, str]] = ()) -> PreTrainedTokenizerFast:
    """Return a tokenizer of bytes, with the special tokens of Qwen's templates.

    Args:
        template: Its chat template.
        merges: Pairs that it merges into one token.
    """
    special = ["<|endoftext|>", END, "<|im_start|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*special, *alphabet, *map("".join, merges)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=special[0],
        eos_token=END,
        additional_special_tokens=special[2:],
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = template
    return fast


def make_prompt(tokenizer: Any, question: str = "Question?", tools: Sequence[Mapping[str, Any]] = ()) -> Prompt:
    messages = [{"role": "user", "content": question}]
    text = tokenizer.apply_chat_template(
        messages, tools=list(tools) or None, tokenize=False, add_generation_prompt=True
    )
    return Prompt(
        index=0,
        token_ids=tuple(tokenizer.encode(text, add_special_tokens=False)),
        text=text,
        messages=tuple(messages),
    )


class ScriptedEngine:
    """Completes prompts by a script, and keeps the requests.

    Args:
        tokenizer: Encodes the lines.
        lines: What it says, one line after the other: a text that it ends with the end token, or a text and why it
            ends, without one.
    """

    def __init__(self, tokenizer: Any, lines: Sequence[str | tuple[str, FinishReason]]) -> None:
        self.tokenizer, self.lines = tokenizer, list(lines)
        self.requests: list[GenerationRequest] = []

    async def generate(self, request: GenerationRequest) -> Completion:
        line = self.lines[len(self.requests)]
        self.requests.append(request)
        text, reason = (line + END, "stop") if isinstance(line, str) else line
        token_ids = tuple(self.tokenizer.encode(text, add_special_tokens=False))
        return Completion(
            token_ids=token_ids,
            logprobs=tuple(-0.5 - index / 64 for index in range(len(token_ids))),
            versions=(len(self.requests),) * len(token_ids),
            finish_reason=reason,
        )

    def decoded(self, number: int) -> str:
        """Return the text of a request's prompt."""
        return str(self.tokenizer.decode(list(self.requests[number].prompt_ids)))
