"""Requests say which environments they are of, and which of these begin an episode."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rlinf.data.messages.embodied import ChunkStep
from rlinf.workers.reward.exchange import RewardExchange


class Sender:
    """A worker that keeps what it sends."""

    def __init__(self, rank: int, world_size: int) -> None:
        self._rank, self._world_size = rank, world_size
        self.sent: list[Any] = []

    def send(self, message: Any, group: str, peer: int, tag: str) -> None:
        self.sent.append(message)

    def recv(self, group: str, peer: int, tag: str) -> torch.Tensor:
        return torch.zeros(2, 1)


def exchange(*, auto_reset: bool, rank: int = 0, world_size: int = 1, rewards: int = 1) -> tuple[Any, Sender]:
    sender: Any = Sender(rank, world_size)
    cfg: Any = SimpleNamespace(
        reward=SimpleNamespace(group_name="reward"),
        rollout=SimpleNamespace(pipeline_stage_num=2),
        env=SimpleNamespace(train=SimpleNamespace(auto_reset=auto_reset)),
    )
    return RewardExchange(sender, cfg, rewards), sender


def step(ends: list[bool], *, is_cut: bool = False) -> ChunkStep:
    flags = torch.tensor(ends).unsqueeze(1)
    none = torch.zeros_like(flags)
    return ChunkStep(
        obs={"states": torch.zeros(len(ends), 1)},
        rewards=torch.zeros(len(ends), 1),
        terminations=none if is_cut else flags,
        truncations=flags if is_cut else none,
        executed=torch.ones_like(flags),
    )


@pytest.mark.parametrize("is_cut", [True, False])
@pytest.mark.parametrize("auto_reset", [True, False])
def test_an_episode_begins_behind_an_end_and_where_environments_are_reset(auto_reset: bool, is_cut: bool) -> None:
    sending, sender = exchange(auto_reset=auto_reset)
    for number, ends in enumerate([[False, True], [False, False], [True, False], [False, False]]):
        sending.submit(0, step(ends, is_cut=is_cut), torch.zeros(2, 1, 1))
        if number == 2:
            sending.collect(0, 3)
    begins = [request.starts.tolist() for request in sender.sent]
    assert begins == [[True, True], [False, True], [False, False], [True, False] if auto_reset else [True, True]]


def test_stages_have_episodes_of_their_own() -> None:
    sending, sender = exchange(auto_reset=True)
    sending.submit(0, step([True, False]), torch.zeros(2, 1, 1))
    sending.submit(1, step([False, False]), torch.zeros(2, 1, 1))
    sending.submit(1, step([False, False]), torch.zeros(2, 1, 1))
    sending.submit(0, step([False, False]), torch.zeros(2, 1, 1))
    assert [r.starts.tolist() for r in sender.sent] == [[True, True], [True, True], [False, False], [True, False]]


def test_numbers_of_environments_are_unique() -> None:
    numbers = []
    for rank in range(2):
        sending, sender = exchange(auto_reset=True, rank=rank, world_size=2, rewards=4)
        for stage in range(2):
            sending.submit(stage, step([False, False]), torch.zeros(2, 1, 1))
        numbers += [request.env_ids.tolist() for request in sender.sent]
    assert numbers == [[number] for number in range(8)]
