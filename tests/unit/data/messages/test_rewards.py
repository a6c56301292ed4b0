"""What rewards are asked with: the observations in which a chunk ended, and what was executed."""

from __future__ import annotations

from dataclasses import replace

import torch

from rlinf.data.messages.embodied import ChunkStep
from rlinf.data.messages.rewards import RewardRequest

FLAGS = torch.zeros(3, 2, dtype=torch.bool)
STEP = ChunkStep(
    obs={"states": torch.tensor([[1.0], [2.0], [3.0]]), "task_descriptions": ["a", "b", "c"]},
    rewards=torch.ones(3, 2),
    terminations=FLAGS,
    truncations=FLAGS,
    executed=~FLAGS,
    final_obs={"states": torch.tensor([[9.0]]), "task_descriptions": ["end"]},
    final_ids=torch.tensor([1]),
)


def test_an_ended_episode_shows_its_last_observation() -> None:
    request = RewardRequest.from_step(STEP, torch.zeros(3, 2, 1))
    assert request.obs["states"].tolist() == [[1.0], [9.0], [3.0]]
    assert request.obs["task_descriptions"] == ["a", "end", "c"]
    assert STEP.obs["states"].tolist() == [[1.0], [2.0], [3.0]]


def test_without_an_end_the_observations_are_those_after_the_chunk() -> None:
    request = RewardRequest.from_step(replace(STEP, final_obs=None, final_ids=None), torch.zeros(3, 2, 1))
    assert request.obs["states"].tolist() == [[1.0], [2.0], [3.0]]
    assert torch.equal(request.rewards, STEP.rewards)
    assert torch.equal(request.executed, STEP.executed)
