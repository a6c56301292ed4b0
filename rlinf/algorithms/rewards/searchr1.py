"""``reward_type: searchr1``."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from rlinf.algorithms.rewards.base import TextReward
from rlinf.algorithms.rewards.extraction import accepted_answers, last_tagged
from rlinf.config.schema.reward import SearchR1RewardConfig
from rlinf.data.messages.responses import RewardQuery

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class SearchR1Reward(TextReward):
    """Exact match of the last ``<answer>...</answer>`` with one of the reference's answers.

    Both sides are normalised as question answering does it: lower case, without punctuation, articles and further
    blanks. The reference is a string, a list, or a mapping with ``target``.
    """

    cfg: SearchR1RewardConfig

    def __call__(self, queries: Sequence[RewardQuery]) -> list[float]:
        """See ``Reward``."""
        return [self._judge(query) for query in queries]

    def _judge(self, query: RewardQuery) -> float:
        accepted = {normalized(text) for text in accepted_answers(query.reference)}
        given = last_tagged(query.response, "answer")
        if given is None:
            return self.cfg.incorrect_reward
        if normalized(given) in accepted:
            return self.cfg.correct_reward
        return self.cfg.incorrect_reward + self.cfg.format_reward


def normalized(text: str) -> str:
    """Return a short answer in lower case, without punctuation, articles and further blanks."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())
