"""``reward_type: vqa``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from rlinf.algorithms.rewards.base import TextReward
from rlinf.algorithms.rewards.extraction import accepted_answers, as_number, last_boxed, last_tagged
from rlinf.config.schema.reward import VQARewardConfig
from rlinf.data.messages.responses import RewardQuery

_NUMBER_WORDS = {
    word: str(number)
    for number, word in enumerate("zero one two three four five six seven eight nine ten".split())  # noqa: SIM905
} | {"none": "0"}
_ARTICLES = {"a", "an", "the"}
_LONELY_PUNCTUATION = re.compile(r"(?<!\d)[.,]|[.,](?!\d)|[^\w\s.,-]")
"""Points and commas that are not inside a number, and every other mark."""
_OPTION = re.compile(r"\(?([A-Za-z])(?:[).:,]|$)")
"""An answer that begins with its letter: ``B``, ``(b) cat``, ``B. cat``."""
_LETTER = re.compile(r"\b[A-Z]\b")


class VQAReward(TextReward):
    r"""Compares a short answer with what people gave; one of several references is enough.

    The answer is what the last ``<answer>`` holds, else the last ``\boxed``, else all of it.
    """

    cfg: VQARewardConfig

    def __call__(self, queries: Sequence[RewardQuery]) -> list[float]:
        """See ``Reward``."""
        matches = self._matchers()[self.cfg.match]
        return [
            self.cfg.correct_reward
            if any(matches(_claim(query.response), text) for text in accepted_answers(query.reference))
            else self.cfg.incorrect_reward
            for query in queries
        ]

    def _matchers(self) -> dict[str, Callable[[str, str], bool]]:
        return {"text": _same_words, "choice": _same_choice, "number": self._close_enough}

    def _close_enough(self, given: str, reference: str) -> bool:
        value, expected = as_number(given), as_number(reference)
        if value is None or expected is None:
            return False
        return abs(value - expected) <= self.cfg.relative_tolerance * abs(expected)


def _claim(response: str) -> str:
    tagged = last_tagged(response, "answer")
    boxed = last_boxed(response) if tagged is None else None
    return tagged if tagged is not None else boxed if boxed is not None else response.strip()


def _same_words(given: str, reference: str) -> bool:
    return normalized_words(given) == normalized_words(reference)


def _same_choice(given: str, reference: str) -> bool:
    letter = chosen_letter(given)
    return letter is not None and letter == chosen_letter(reference)


def normalized_words(text: str) -> list[str]:
    """Return the words of a short answer: lower case, number words as digits, no articles and no punctuation."""
    words = _LONELY_PUNCTUATION.sub(" ", text.lower()).replace(",", "").split()
    return [_NUMBER_WORDS.get(word, word) for word in words if word not in _ARTICLES]


def chosen_letter(text: str) -> str | None:
    """Return the letter of the option that an answer names, in upper case; None where it names none."""
    first = _OPTION.match(text)
    letters = [first.group(1)] if first else _LETTER.findall(text)
    return letters[-1].upper() if letters else None
