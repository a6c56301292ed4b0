"""``reward_type: env`` and ``reward_type: action_penalty``."""

from __future__ import annotations

import torch

from rlinf.algorithms.rewards.base import EmbodiedReward
from rlinf.data.messages.rewards import RewardRequest


class EnvReward(EmbodiedReward):
    """The environment's own reward."""

    def __call__(self, request: RewardRequest) -> torch.Tensor:
        """See ``Reward``."""
        return request.rewards


class ActionPenaltyReward(EmbodiedReward):
    """Minus the mean square of each action's dimensions."""

    def __call__(self, request: RewardRequest) -> torch.Tensor:
        """See ``Reward``."""
        actions = request.actions.float()
        return -actions.reshape(*request.executed.shape, -1).square().mean(-1)
