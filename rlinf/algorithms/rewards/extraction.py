"""Finds what an answer claims in what it says; linear in the length of any text."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rlinf.errors import RewardError

NUMBER = re.compile(r"[-+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?")
"""A decimal number, with or without commas between thousands."""

_TAIL_CHARS = 4096
"""The claim is looked for at the end; a number longer than this is not a claim."""


def last_tagged(text: str, tag: str) -> str | None:
    """Return what the last ``<tag>...</tag>`` holds; None where there is none that is closed."""
    end = text.rfind(f"</{tag}>")
    start = text.rfind(f"<{tag}>", 0, max(end, 0))
    return None if min(start, end) < 0 else text[start + len(tag) + 2 : end].strip()


def last_boxed(text: str) -> str | None:
    r"""Return what the last ``\boxed{...}`` holds; None where there is none, or the last one is not closed."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    start += len("\\boxed{")
    depth, position = 1, start
    while position < len(text):
        letter = text[position]
        if letter == "\\":  # \{ and \} are printed; they hold nothing together
            position += 1
        elif letter in "{}":
            depth += 1 if letter == "{" else -1
            if not depth:
                return text[start:position].strip()
        position += 1
    return None


def last_number(text: str) -> str | None:
    """Return the last decimal number near the end of a text, without its commas; None where there is none."""
    found = NUMBER.findall(text[-_TAIL_CHARS:])
    return found[-1].replace(",", "") if found else None


def as_number(text: str) -> float | None:
    """Return the last number of a text; None where there is none, or none that a float can hold."""
    found = last_number(text)
    value = math.nan if found is None else float(found)
    return value if math.isfinite(value) else None


def accepted_answers(reference: Any) -> list[str]:
    """Return the texts that a reference accepts.

    Args:
        reference: A string or number, a list of these, or a mapping that holds them under ``target``.

    Raises:
        RewardError: It is none of these.
    """
    if isinstance(reference, Mapping) and "target" in reference:
        return accepted_answers(reference["target"])
    if hasattr(reference, "tolist"):  # parquet holds lists as arrays
        return accepted_answers(reference.tolist())
    if isinstance(reference, str):
        return [reference]
    if isinstance(reference, Sequence) and reference:
        return [text for entry in reference for text in accepted_answers(entry)]
    if isinstance(reference, (int, float)):
        return [str(reference)]
    raise RewardError(
        f"A reference is {str(reference)[:100]!r} ({type(reference).__name__}); expected a string, a number, a list of "
        "them that is not empty, or a mapping with the key 'target'. Correct the dataset, or which field is taken."
    )


def reward_of_reply(reply: str, rewards: Mapping[str, float], invalid_reward: float) -> float:
    """Return the reward of what a model that judges has replied.

    Args:
        reply: Its text.
        rewards: Rewards of words, of which the last in the reply counts; empty takes the last number of the reply.
        invalid_reward: Of any other reply.
    """
    if not rewards:
        number = as_number(reply)
        return invalid_reward if number is None else number
    of_word = {word.lower(): reward for word, reward in rewards.items()}
    words = [word for word in re.findall(r"\w+", reply.lower()) if word in of_word]
    return of_word[words[-1]] if words else invalid_reward
