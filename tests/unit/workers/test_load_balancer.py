"""Requests of env ranks go to whichever rollout rank is free, and the end of a rollout reaches each rank once."""

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from rlinf.data.messages.action_request import ActionRequest
from rlinf.data.messages.embodied import ChunkStep
from rlinf.scheduler import Channel
from rlinf.workers.load_balancer import LoadBalancer

ENVS, ROLLOUTS = 3, 2


@pytest.fixture
def balancer() -> Iterator[LoadBalancer]:
    channel = Channel.create(f"balancer/{uuid.uuid4().hex}", local=True)
    yield LoadBalancer.open(channel, num_env_workers=ENVS, num_rollout_workers=ROLLOUTS)
    channel.close()


def request(env_rank: int, row: int = 0, step: int = 1) -> ActionRequest:
    nothing = torch.zeros(1, 0)
    none = nothing.bool()
    chunk = ChunkStep(obs={}, rewards=nothing, terminations=none, truncations=none, executed=none)
    return ActionRequest(
        env_rank=env_rank,
        stage=0,
        mode="train",
        step=step,
        epoch=0,
        row=row,
        is_last=False,
        wants_values=False,
        chunk=chunk,
    )


def serve(balancer: Any, rank: int, answered: list[Any]) -> list[Any]:
    """Answer one rollout's requests."""
    served = []
    while True:
        balancer.mark_idle(rank)
        request_or_end = balancer.next_request(rank)
        if request_or_end is None:
            return served
        served.append((request_or_end.env_rank, request_or_end.row))
        answered[request_or_end.env_rank].release()


def test_a_request_goes_to_the_rank_that_has_been_idle_for_longest(balancer: LoadBalancer) -> None:
    balancer.mark_idle(1)
    balancer.mark_idle(0)
    assert [balancer.submit(request(env)).wait(5) for env in (0, 1)] == [1, 0]
    assert [balancer.next_request(rank).env_rank for rank in (0, 1)] == [1, 0]


def test_a_request_waits_while_no_rank_is_idle(balancer: LoadBalancer) -> None:
    submitted = balancer.submit(request(0))
    assert not submitted.done()
    balancer.mark_idle(1)
    assert submitted.wait(5) == 1
    assert balancer.next_request(1).env_rank == 0


def test_an_environment_that_takes_its_time_keeps_no_rollout_rank_waiting(balancer: LoadBalancer) -> None:
    answered = [threading.Semaphore(0) for _ in range(ENVS)]
    others_are_done = threading.Event()

    def play(env: Any) -> None:
        for row in range(20):
            balancer.submit(request(env, row)).wait(10)
            assert answered[env].acquire(timeout=10)
            if env == 0 and row == 0:
                assert others_are_done.wait(10)
        balancer.end_rollout("train/1")

    with ThreadPoolExecutor(ENVS + ROLLOUTS) as threads:
        servers = [threads.submit(serve, balancer, rank, answered) for rank in range(ROLLOUTS)]
        players = [threads.submit(play, env) for env in range(ENVS)]
        for player in players[1:]:
            player.result(20)
        others_are_done.set()
        players[0].result(20)
        served = [server.result(10) for server in servers]
    assert sorted(served[0] + served[1]) == [(env, row) for env in range(ENVS) for row in range(20)]
    assert all(served)


def test_a_rollout_ends_for_every_rank_once_when_all_env_ranks_have_ended_it(balancer: LoadBalancer) -> None:
    # Two env ranks are a rollout ahead of the third.
    for rollout in ("train/1", "train/2"):
        balancer.end_rollout(rollout)
        balancer.end_rollout(rollout)
    assert balancer.channel.empty("rollout/0")
    balancer.end_rollout("train/1")
    assert [balancer.channel.qsize(f"rollout/{rank}") for rank in range(ROLLOUTS)] == [1, 1]
    balancer.end_rollout("train/2")
    assert [balancer.channel.qsize(f"rollout/{rank}") for rank in range(ROLLOUTS)] == [2, 2]
    assert [balancer.next_request(0), balancer.next_request(1)] == [None, None]
