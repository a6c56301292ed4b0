"""``reward_type: env``."""

from __future__ import annotations

import torch

from rlinf.algorithms.rewards.base import EmbodiedReward
from rlinf.data.rewards import RewardRequest


class EnvReward(EmbodiedReward):
    """What the environment itself gives."""

    def __call__(self, request: RewardRequest) -> torch.Tensor:
        """See ``EmbodiedReward``."""
        return request.rewards
