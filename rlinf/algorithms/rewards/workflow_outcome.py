"""``reward_type: workflow``."""

from __future__ import annotations

from collections.abc import Sequence

from rlinf.algorithms.rewards.base import TextReward
from rlinf.data.messages.responses import RewardQuery
from rlinf.errors import RewardError


class WorkflowReward(TextReward):
    """The judgement that the workflow itself returned; 0 for an episode that ended before, by a limit or its time."""

    def __call__(self, queries: Sequence[RewardQuery]) -> list[float]:
        """See ``Reward``.

        Raises:
            RewardError: A workflow that ended by itself returned none.
        """
        return [_judgement(query) for query in queries]


def _judgement(query: RewardQuery) -> float:
    if query.outcome is not None:
        return query.outcome
    if query.finish_reason == "length":
        return 0.0
    raise RewardError(
        "the workflow returned None. Let it return a number, or choose a reward that reads responses, such as "
        "reward_type=math."
    )
