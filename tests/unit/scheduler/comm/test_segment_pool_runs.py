"""Shared memory of a whole run: it comes back from the dead, outlives producers, and is gone in the end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

from rlinf.errors import WorkerDiedError
from rlinf.scheduler import Channel, Cluster, Worker, WorkerGroup
from rlinf.scheduler.comm import folders
from rlinf.scheduler.runtime import current_runtime

SIZE = 300_000


class Keeper(Worker):
    """Sends large tensors and keeps those it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = []

    def give(self, group: Any, value: float) -> None:
        self.send(torch.full((SIZE,), value), group, 0)

    def take(self, group: Any) -> float:
        self.kept.append(self.recv(group, 0))
        return float(self.kept[-1].sum())

    def drop(self) -> None:
        self.kept.clear()

    def held(self) -> int:
        reference_counts = current_runtime().endpoint.segments.reference_counts
        reference_counts.settle()
        return len(reference_counts)

    def put(self, channel: Channel, value: float) -> None:
        channel.put(torch.full((SIZE,), value))

    def get(self, channel: Any) -> float:
        return float(channel.get().sum())


@pytest.fixture
def pair(launch: Callable[..., Any]) -> tuple[WorkerGroup[Any], WorkerGroup[Any]]:
    return launch(Keeper.create_group(), ranks=1), launch(Keeper.create_group(), ranks=1)


def settle(condition: Callable[[], Any] | Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def kill(group: Any) -> None:
    os.kill(group.worker_info_list[0].pid, signal.SIGKILL)
    with pytest.raises(WorkerDiedError):
        group.held().wait()


def test_a_sender_gets_its_memory_back(pair: Any) -> None:
    giver, taker = pair
    for value in (1.0, 2.0):
        giver.give(taker.name, value).wait()
        assert taker.take(giver.name).wait() == [SIZE * value]
    assert giver.held().wait() == [2]
    taker.drop().wait()
    settle(lambda: giver.held().wait() == [0])


def test_a_killed_receiver_gives_back_what_it_held(pair: Any) -> None:
    giver, taker = pair
    giver.give(taker.name, 1.0).wait()
    taker.take(giver.name).wait()
    assert giver.held().wait() == [1]
    kill(taker)
    settle(lambda: giver.held().wait() == [0])


def test_an_item_outlives_its_producer(pair: Any, unique: str) -> None:
    producer, consumer = pair
    channel = Channel.create(unique)
    producer.put(channel, 3.0).wait()
    uid = producer.worker_info_list[0].endpoint.uid
    kill(producer)
    namespace = current_runtime().spec.namespace
    settle(lambda: not folders.segments_folder(folders.SHARED_MEMORY, namespace, uid).exists())
    assert consumer.get(channel).wait() == [SIZE * 3.0]
    channel.close()


RUN = """
import sys, torch
from rlinf.config.schema.cluster import ClusterConfig
from rlinf.scheduler import Channel, Cluster
with Cluster(cluster_cfg=ClusterConfig(cpu_slots_per_node=1)) as cluster:
    channel = Channel.create("c")
    for _ in range(3):
        channel.put(torch.zeros(1_000_000))
    item = channel.get()
    print(cluster.namespace, flush=True)
"""


def test_nothing_is_left_after_a_run(cluster: Cluster) -> None:
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__)))))
    done = subprocess.run(
        [sys.executable, "-c", RUN], capture_output=True, text=True, cwd=root, timeout=120, check=True
    )
    namespace = done.stdout.strip().splitlines()[-1]
    for base in (folders.SHARED_MEMORY, folders.temporary_base()):
        assert not folders._folder(base, namespace).exists()
