"""What ``reward_type: math`` compares: the answer that a text claims, and the one that a reference gives."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from rlinf.algorithms.rewards.extraction import NUMBER, accepted_answers, last_boxed, last_number

ReferenceFormat = Literal["latex", "gsm8k"]

_TAIL_CHARS = 1000
"""An answer without a box is looked for at the end of the text."""
_INTEGER = re.compile(r"[-+]?\d{1,1000}")
"""Python reads integers of a few thousand digits only."""


@dataclass(frozen=True, slots=True)
class Claim:
    r"""What an answer says the solution is.

    Attributes:
        text: The solution, or text that ends with it.
        boxed: Whether ``text`` is what ``\boxed`` holds.
    """

    text: str
    boxed: bool


def find_claim(response: str, *, require_boxed: bool) -> Claim | None:
    r"""Return what an answer claims, or None where it claims nothing.

    Args:
        response: The answer.
        require_boxed: Whether only what the last ``\boxed`` holds counts; else the end of the text does where there
            is no box, and what follows its last ``####``, if anything does.
    """
    boxed = last_boxed(response)
    if boxed is not None:
        return Claim(boxed, boxed=True)
    if require_boxed:
        return None
    text = response[-_TAIL_CHARS:].rpartition("####")[2].strip()
    return Claim(text, boxed=False) if text else None


def solutions(reference: Any, form: ReferenceFormat) -> list[str]:
    """Return the solutions that a reference accepts; plain numbers without commas.

    Args:
        reference: A number, LaTeX, or a list of these.
        form: ``gsm8k`` for texts whose solution follows the last ``####``.

    Raises:
        RewardError: The reference is neither text nor number.
    """
    texts = accepted_answers(reference)
    if form == "gsm8k":
        texts = [text.rpartition("####")[2] for text in texts]
    return [_plain(text.strip()) for text in texts]


def same_at_sight(claim: Claim, solution: str) -> bool | None:
    """Return whether a claim is right where no mathematics is needed for it: equal texts, two integers.

    Args:
        claim: What the answer claims.
        solution: One of ``solutions``.

    Returns:
        None where it takes more than that.
    """
    if not claim.boxed and not {"\\", "$"} & set(claim.text) and last_number(claim.text) == solution:
        return True
    text = _plain(claim.text)
    if text == solution:
        return bool(text)
    if _INTEGER.fullmatch(text) and _INTEGER.fullmatch(solution):
        return int(text) == int(solution)
    return None


def _plain(text: str) -> str:
    return text.replace(",", "") if NUMBER.fullmatch(text) else text
