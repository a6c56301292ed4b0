"""``reward_type: api``: rewards from an HTTP service."""

from __future__ import annotations

import base64
from typing import Any

import torch

from rlinf.algorithms.rewards.base import EmbodiedReward, at_last_action
from rlinf.config.schema.reward import ApiRewardConfig
from rlinf.data.rewards import RewardRequest
from rlinf.errors import RewardError
from rlinf.workers.reward.json_service import post_json, rewards_of


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
        answer = post_json(
            self.cfg.url,
            self._body(request),
            timeout_seconds=self.cfg.timeout_seconds,
            max_retries=self.cfg.max_retries,
        )
        scores = rewards_of(self.cfg.url, answer, len(request.executed))
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


def _encode(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    array = value.cpu().numpy()
    return {"shape": list(array.shape), "dtype": str(array.dtype), "data": base64.b64encode(array.tobytes()).decode()}
