"""What rewards have in common: scores of chunks, and numbers reported with a score."""

from __future__ import annotations

import pickle

import torch

from rlinf.algorithms.rewards.base import EmbodiedReward, MeasuredReward, RewardContext, at_last_action


def test_scores_of_chunks_belong_to_the_last_executed_action() -> None:
    executed = torch.tensor([[True, True, True], [True, False, False], [False, False, False]])
    scores = at_last_action(torch.tensor([2.0, 3.0, 5.0]), executed)
    assert scores.tolist() == [[0.0, 0.0, 2.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


def test_a_measured_reward_is_a_number_and_travels_with_its_metrics() -> None:
    metrics = {"timeout": 1.0}
    reward = MeasuredReward(0.5, metrics)
    metrics["timeout"] = 0.0
    again = pickle.loads(pickle.dumps(reward))
    assert again == reward == 0.5
    assert again.metrics == {"timeout": 1.0}


def test_a_reward_knows_its_config_and_device() -> None:
    class Constant(EmbodiedReward):
        def __call__(self, request: object) -> torch.Tensor:
            return torch.full((1, 1), float(self.cfg), device=self.device)

    reward = Constant(3, RewardContext(torch.device("cpu")))
    assert reward(None).tolist() == [[3.0]]
    reward.close()
