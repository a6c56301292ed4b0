"""The reward of one response."""

from __future__ import annotations

from typing import Any

from rlinf.algorithms.rewards import get_reward_class
from rlinf.config.schema.reward import (
    OverlongRewardConfig,
    SearchR1RewardConfig,
    VQARewardConfig,
    WideSeekR1RewardConfig,
)
from rlinf.data.messages.responses import RewardQuery


def judge(
    cfg: OverlongRewardConfig | SearchR1RewardConfig | VQARewardConfig | WideSeekR1RewardConfig,
    response: str,
    reference: Any = None,
    **fields: Any,
) -> Any:
    (reward,) = get_reward_class(cfg.reward_type)(cfg)(
        [RewardQuery(prompt="", response=response, reference=reference, **fields)]
    )
    return reward
