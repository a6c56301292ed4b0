"""``reward_type: text_api``: rewards of answers from an HTTP service."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rlinf.algorithms.rewards.base import TextReward
from rlinf.config.schema.text_reward import TextApiRewardConfig
from rlinf.data.answers import RewardQuery
from rlinf.errors import RewardError
from rlinf.workers.reward.json_service import post_json, rewards_of


class TextApiReward(TextReward):
    """Posts ``{"queries": [{"prompt": ..., "response": ..., ...}]}`` and expects ``{"rewards": [a number for each]}``.

    A query has the fields of ``RewardQuery``.
    """

    cfg: TextApiRewardConfig

    def __call__(self, queries: Sequence[RewardQuery]) -> list[float]:
        """See ``TextReward``.

        Raises:
            RewardError: The service did not answer in time at any attempt, or answered something else.
        """
        size = self.cfg.batch_size
        return [reward for start in range(0, len(queries), size) for reward in self._ask(queries[start : start + size])]

    def _ask(self, queries: Sequence[RewardQuery]) -> list[float]:
        body = {"queries": [_plain(query) for query in queries]}
        try:
            answer = post_json(
                self.cfg.url, body, timeout_seconds=self.cfg.timeout_seconds, max_retries=self.cfg.max_retries
            )
        except TypeError as error:
            raise RewardError(
                f"A reference or its metadata cannot be sent as JSON: {error}. Keep to strings, numbers, lists and "
                "mappings in the dataset."
            ) from error
        return rewards_of(self.cfg.url, answer, len(queries))


def _plain(query: RewardQuery) -> dict[str, Any]:
    fields = {field.name: getattr(query, field.name) for field in dataclasses.fields(query)}
    return fields | {"metadata": dict(query.metadata)}
