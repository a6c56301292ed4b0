"""``reward_type: api``: rewards from an HTTP service."""

from __future__ import annotations

import base64
import http.client
import json
import time
import urllib.error
import urllib.request
from typing import Any

import torch

from rlinf.algorithms.rewards.base import EmbodiedReward, at_last_action
from rlinf.config.schema.reward import ApiRewardConfig
from rlinf.data.rewards import RewardRequest
from rlinf.errors import RewardError

_FIRST_PAUSE_SECONDS = 0.5
"""Before the second attempt; doubled before each further one."""


class ApiReward(EmbodiedReward):
    """Posts ``{"obs": {key: array}, "rewards": [B], "done": [B]}`` and expects ``{"rewards": [B numbers]}``.

    A tensor travels as ``{"shape": [...], "dtype": "uint8", "data": <base64 of its bytes, in C order>}``, strings as a
    list. ``rewards`` is the environment's own sum over the chunk; ``done`` tells whether it ended an episode.
    """

    cfg: ApiRewardConfig

    def __call__(self, request: RewardRequest) -> torch.Tensor:
        """See ``EmbodiedReward``.

        Raises:
            RewardError: The service did not answer in time at any attempt, or answered something else.
        """
        answer = self._post(json.dumps(self._body(request)).encode())
        count = len(request.executed)
        try:
            scores = torch.tensor(answer["rewards"], dtype=torch.float32)
        except (KeyError, TypeError, ValueError) as error:
            raise self._unexpected(answer, count) from error
        if scores.shape != (count,):
            raise self._unexpected(answer, count)
        return at_last_action(scores, request.executed)

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

    def _post(self, body: bytes) -> Any:
        attempts = self.cfg.max_retries + 1
        for attempt in range(attempts):
            if attempt:
                time.sleep(_FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
            try:
                return self._attempt(body)
            except (OSError, http.client.HTTPException) as error:  # refused, reset, timed out, or a status of failure
                failure: Exception = error
                if isinstance(error, urllib.error.HTTPError) and error.code < 500:  # it would be refused again
                    break
            except ValueError as error:
                failure = error
        raise RewardError(
            f"{self.cfg.url} did not answer in attempt {attempt + 1} of {attempts}, within "
            f"{self.cfg.timeout_seconds:g} s: {type(failure).__name__}: {failure}. See whether the service runs, or "
            "raise the reward's timeout_seconds or max_retries."
        ) from failure

    def _attempt(self, body: bytes) -> Any:
        request = urllib.request.Request(self.cfg.url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=self.cfg.timeout_seconds) as answer:
            return json.loads(answer.read())

    def _unexpected(self, answer: Any, count: int) -> RewardError:
        return RewardError(
            f'{self.cfg.url} answered {str(answer)[:200]}; expected {{"rewards": [{count} numbers]}}. Correct the '
            "service."
        )


def _encode(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    array = value.cpu().numpy()
    return {"shape": list(array.shape), "dtype": str(array.dtype), "data": base64.b64encode(array.tobytes()).decode()}
