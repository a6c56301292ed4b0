"""The reward of one response."""

from __future__ import annotations

from rlinf.algorithms.rewards import get_reward_class
from rlinf.data.messages.responses import RewardQuery


def judge(cfg, response, reference=None, **fields):
    (reward,) = get_reward_class(cfg.reward_type)(cfg)(
        [RewardQuery(prompt="", response=response, reference=reference, **fields)]
    )
    return reward
