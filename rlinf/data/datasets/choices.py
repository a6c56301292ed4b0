"""Questions with choices: the choices as lettered lines of the prompt, and the right one as the answer."""

from __future__ import annotations

import ast
import string
from collections.abc import Sequence
from typing import Any

from rlinf.data.datasets.text_rows import Place
from rlinf.errors import DatasetError

_LETTERS = string.ascii_uppercase


def write_choices(question: Any, choices: Any, answer: Any, where: Place) -> tuple[str, str]:
    r"""Return a question with its choices below it, and the right one with its letter.

    The layout is that of Robo2VLM-1 (Chen et al. 2025): "...\nChoices:\nA. left\nB. right\n" and "B. right".

    Args:
        question: The question's text.
        choices: A list, or text that writes one.
        answer: The right choice: its letter, or its index from 0.
        where: Where the row stands.

    Raises:
        DatasetError: The question is no text, the choices are no list, or the answer is none of them.
    """
    if not isinstance(question, str):
        raise DatasetError(
            f"{where.option('prompt_key')}: received {type(question).__name__} in {where}; with data.choice_key a "
            "question is text. Choose another column, or remove data.choice_key."
        )
    listed = _listed(choices, where)
    number = _LETTERS.find(answer.strip().upper()) if _is_letter(answer) else answer
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(listed):
        raise DatasetError(
            f"{where.option('answer_key')}: received {answer!r} in {where}, whose data.choice_key has {len(listed)} "
            f"choices; allowed: a letter from A to {_LETTERS[len(listed) - 1]}, or an index from 0 to "
            f"{len(listed) - 1}. Correct the row, or choose another column."
        )
    lines = [f"{letter}. {choice}" for letter, choice in zip(_LETTERS, listed, strict=False)]
    return "\n".join([question, "Choices:", *lines, ""]), lines[number]


def _is_letter(answer: Any) -> bool:
    return isinstance(answer, str) and len(answer.strip()) == 1 and answer.strip().upper() in _LETTERS


def _listed(choices: Any, where: Place) -> Sequence[Any]:
    """Return choices as a list of 1 to 26."""
    if isinstance(choices, str):
        try:
            choices = ast.literal_eval(choices)
        except (ValueError, SyntaxError):
            choices = None
    if isinstance(choices, (list, tuple)) and 0 < len(choices) <= len(_LETTERS):
        return choices
    raise DatasetError(
        f"data.choice_key: {where} has no list of 1 to {len(_LETTERS)} choices, nor text that writes one. Correct the "
        "row, or choose another column."
    )
