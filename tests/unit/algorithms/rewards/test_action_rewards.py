"""``reward_type: env`` and ``reward_type: action_penalty``."""

from __future__ import annotations

import torch

from rlinf.algorithms.rewards import get_reward_class
from rlinf.algorithms.rewards.action_rewards import ActionPenaltyReward, EnvReward
from rlinf.config.schema.reward import ActionPenaltyConfig, EnvRewardConfig
from rlinf.data.messages.rewards import RewardRequest

REQUEST = RewardRequest(
    obs={},
    actions=torch.tensor([[[1.0, 3.0], [0.0, 2.0]]]),
    rewards=torch.tensor([[0.25, 0.5]]),
    executed=torch.ones(1, 2, dtype=torch.bool),
    terminations=torch.zeros(1, 2, dtype=torch.bool),
    truncations=torch.zeros(1, 2, dtype=torch.bool),
    env_ids=torch.tensor([0]),
    starts=torch.tensor([True]),
)


def test_the_environments_own_reward_passes_through() -> None:
    assert get_reward_class("env")(EnvRewardConfig(reward_type="env"))(REQUEST).tolist() == [[0.25, 0.5]]
    assert get_reward_class("env") is EnvReward


def test_the_penalty_is_the_mean_square_of_each_action() -> None:
    assert get_reward_class("action_penalty") is ActionPenaltyReward
    reward = ActionPenaltyReward(ActionPenaltyConfig(reward_type="action_penalty"))
    assert reward(REQUEST).tolist() == [[-5.0, -2.0]]
