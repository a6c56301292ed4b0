"""``reward_type: api`` and ``reward_type: text_api``: rewards from an HTTP service."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from rlinf.algorithms.rewards.base import EmbodiedReward, TextReward, at_last_action
from rlinf.config.schema.reward import ApiRewardConfig, TextApiRewardConfig
from rlinf.data.messages.responses import RewardQuery
from rlinf.data.messages.rewards import RewardRequest
from rlinf.errors import RewardError
from rlinf.utils.json_service import post_json
from rlinf.utils.urls import mask_url


class ApiReward(EmbodiedReward):
    """Posts ``{"obs": {key: array}, "rewards": [B], "done": [B]}`` and expects ``{"rewards": [B numbers]}``.

    A tensor travels as ``{"shape": [...], "dtype": "uint8", "data": <base64 of its bytes, in C order>}``, strings as a
    list. ``rewards`` is the environment's own sum over the chunk; ``done`` says whether it ended an episode.
    """

    cfg: ApiRewardConfig

    def __call__(self, request: RewardRequest) -> torch.Tensor:
        """See ``Reward``.

        Raises:
            RewardError: The service did not respond in time at any attempt, or sent something else.
        """
        scores = _query_service(self.cfg, self._body(request), len(request.executed))
        return at_last_action(torch.tensor(scores, dtype=torch.float32), request.executed)

    def _body(self, request: RewardRequest) -> dict[str, Any]:
        missing = [key for key in self.cfg.obs_keys if key not in request.obs]
        if missing:
            raise RewardError(
                f"reward.rewards.*.obs_keys: received {missing}; the environment shows "
                f"{', '.join(sorted(request.obs))}. Name some of these."
            )
        return {
            "obs": {key: _encode(request.obs[key]) for key in self.cfg.obs_keys},
            "rewards": request.rewards.sum(-1).tolist(),
            "done": (request.terminations | request.truncations).any(-1).tolist(),
        }


class TextApiReward(TextReward):
    """Posts ``{"queries": [{"prompt": ..., "response": ..., ...}]}`` and expects ``{"rewards": [a number for each]}``.

    A query has the fields of ``RewardQuery``.
    """

    cfg: TextApiRewardConfig

    def __call__(self, queries: Sequence[RewardQuery]) -> list[float]:
        """See ``Reward``.

        Raises:
            RewardError: The service did not respond in time at any attempt, or sent something else.
        """
        size = self.cfg.batch_size
        batches = (queries[start : start + size] for start in range(0, len(queries), size))
        return [reward for batch in batches for reward in self._score(batch)]

    def _score(self, queries: Sequence[RewardQuery]) -> list[float]:
        try:
            return _query_service(self.cfg, {"queries": [_plain(query) for query in queries]}, len(queries))
        except TypeError as error:
            raise RewardError(
                f"A reference or its metadata cannot be sent as JSON: {error}. Keep to strings, numbers, lists and "
                "mappings in the dataset."
            ) from error


def _query_service(cfg: ApiRewardConfig | TextApiRewardConfig, body: Any, count: int) -> list[float]:
    reply = post_json(cfg.url, body, timeout_seconds=cfg.timeout_seconds, max_retries=cfg.max_retries)
    return _rewards_of(cfg.url, reply, count)


def _encode(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    array = value.cpu().numpy()
    return {"shape": list(array.shape), "dtype": str(array.dtype), "data": base64.b64encode(array.tobytes()).decode()}


def _plain(query: RewardQuery) -> dict[str, Any]:
    fields = {field.name: getattr(query, field.name) for field in dataclasses.fields(query)}
    return fields | {"metadata": dict(query.metadata)}


def _rewards_of(url: str, answer: Any, count: int) -> list[float]:
    """Return the numbers of a response ``{"rewards": [...]}``."""
    rewards = answer.get("rewards") if isinstance(answer, dict) else None
    if isinstance(rewards, list) and len(rewards) == count and all(isinstance(x, int | float) for x in rewards):
        with contextlib.suppress(OverflowError):  # an integer beyond every float
            return [float(value) for value in rewards]
    raise RewardError(
        f'{mask_url(url)} answered {str(answer)[:200]}; expected {{"rewards": [{count} numbers]}}. Correct the service.'
    )
