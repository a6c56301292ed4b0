"""Requests of env ranks go to whichever rollout rank is free, and the end of a rollout reaches each rank once."""

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from rlinf.data.messages.decisions import ActionRequest
from rlinf.data.messages.embodied import ChunkStep
from rlinf.scheduler import Channel
from rlinf.workers.dispatch import Dispatch

ENVS, ROLLOUTS = 3, 2


@pytest.fixture
def dispatch():
    channel = Channel.create(f"dispatch/{uuid.uuid4().hex}", local=True)
    yield Dispatch.open(channel, num_env_workers=ENVS, num_rollout_workers=ROLLOUTS)
    channel.close()


def request(env_rank, row=0, step=1):
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


def serve(dispatch, rank, answered):
    """Answer one rollout's requests."""
    served = []
    while True:
        dispatch.announce(rank)
        taken = dispatch.take(rank)
        if taken is None:
            return served
        served.append((taken.env_rank, taken.row))
        answered[taken.env_rank].release()


def test_a_request_goes_to_the_rank_that_has_been_free_for_longest(dispatch):
    dispatch.announce(1)
    dispatch.announce(0)
    assert [dispatch.submit(request(env)).wait(5) for env in (0, 1)] == [1, 0]
    assert [dispatch.take(rank).env_rank for rank in (0, 1)] == [1, 0]


def test_a_request_waits_while_nobody_is_free(dispatch):
    asked = dispatch.submit(request(0))
    assert not asked.done()
    dispatch.announce(1)
    assert asked.wait(5) == 1
    assert dispatch.take(1).env_rank == 0


def test_an_environment_that_takes_its_time_keeps_no_rollout_rank_waiting(dispatch):
    answered = [threading.Semaphore(0) for _ in range(ENVS)]
    others_are_done = threading.Event()

    def play(env):
        for row in range(20):
            dispatch.submit(request(env, row)).wait(10)
            assert answered[env].acquire(timeout=10)
            if env == 0 and row == 0:
                assert others_are_done.wait(10)
        dispatch.end("train/1")

    with ThreadPoolExecutor(ENVS + ROLLOUTS) as threads:
        servers = [threads.submit(serve, dispatch, rank, answered) for rank in range(ROLLOUTS)]
        players = [threads.submit(play, env) for env in range(ENVS)]
        for player in players[1:]:
            player.result(20)
        others_are_done.set()
        players[0].result(20)
        served = [server.result(10) for server in servers]
    assert sorted(served[0] + served[1]) == [(env, row) for env in range(ENVS) for row in range(20)]
    assert all(served)


def test_a_rollout_ends_for_every_rank_once_when_all_env_ranks_have_ended_it(dispatch):
    # Two env ranks are a rollout ahead of the third.
    for rollout in ("train/1", "train/2"):
        dispatch.end(rollout)
        dispatch.end(rollout)
    assert dispatch.channel.empty("rollout/0")
    dispatch.end("train/1")
    assert [dispatch.channel.qsize(f"rollout/{rank}") for rank in range(ROLLOUTS)] == [1, 1]
    dispatch.end("train/2")
    assert [dispatch.channel.qsize(f"rollout/{rank}") for rank in range(ROLLOUTS)] == [2, 2]
    assert [dispatch.take(0), dispatch.take(1)] == [None, None]
