"""A chunk of three environments, as rewards of actions are shown it."""

from __future__ import annotations

import torch

from rlinf.data.messages.embodied import ChunkStep
from rlinf.data.messages.rewards import RewardRequest


def step_result() -> ChunkStep:
    """Three environments, two actions: one goes on, one ends after its first action, one rests."""
    executed = torch.tensor([[True, True], [True, False], [False, False]])
    ends = torch.tensor([[False, False], [True, False], [False, False]])
    return ChunkStep(
        obs={"states": torch.tensor([[1.0], [2.0], [3.0]]), "task": ["a", "b", "c"]},
        rewards=torch.tensor([[0.5, 1.0], [2.0, 0.0], [0.0, 0.0]]),
        terminations=ends,
        truncations=torch.zeros_like(ends),
        executed=executed,
        final_obs={"states": torch.tensor([[9.0]]), "task": ["end"]},
        final_ids=torch.tensor([1]),
    )


def request() -> RewardRequest:
    """Return the request about it."""
    return RewardRequest.from_step(step_result(), torch.tensor([[[1.0, 3.0], [0.0, 2.0]]] * 3))
