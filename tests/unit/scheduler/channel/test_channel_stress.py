"""Ten thousand items over a thousand keys, with eight users of both kinds at once: none lost, none out of order."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from rlinf.scheduler import Channel, Cluster, NodePlacementStrategy, Worker, WorkerGroup

NUM_ITEMS = 10_000
NUM_KEYS = 1_000
# Each runs a sync and an async method at once: four users put, four get.
NUM_WORKERS = 4


class Mover(Worker):
    """Puts or gets its share of the keys."""

    def put_sync(self, channel: Channel, keys: list[int], count: int) -> None:
        for number in range(count):
            for key in keys:
                channel.put((key, number, self._payload(number)), key=key)

    async def put_async(self, channel: Channel, keys: list[int], count: int) -> None:
        for number in range(count):
            works = [channel.put((key, number, self._payload(number)), key=key, async_op=True) for key in keys]
            await asyncio.gather(*(work.async_wait() for work in works))

    def get_sync(self, channel: Channel, keys: list[int], count: int) -> list[list[Any]]:
        rounds = [[channel.get(key=key)[:2] for key in keys] for _ in range(count)]
        return [list(items) for items in zip(*rounds, strict=True)]

    async def get_async(self, channel: Channel, keys: list[int], count: int) -> list[list[Any]]:
        async def drain(key: Any) -> list[Any]:
            return [(await channel.get(key=key, async_op=True).async_wait())[:2] for _ in range(count)]

        return await asyncio.gather(*(drain(key) for key in keys))

    def _payload(self, number: int) -> torch.Tensor | int:
        # Now and then one that goes through shared memory.
        return torch.full((20_000,), number) if number == 3 else number


@pytest.fixture(scope="module")
def movers(cluster: Cluster) -> Iterator[WorkerGroup[Any]]:
    group = Mover.create_group().launch(cluster, NodePlacementStrategy([0] * NUM_WORKERS), name="movers")
    yield group
    group.close()


def test_many_users_share_many_keys(movers: WorkerGroup[Any], unique: str) -> None:
    channel = Channel.create(unique, maxsize=7)
    each = NUM_ITEMS // NUM_KEYS
    keys = [list(range(start, NUM_KEYS, 4)) for start in range(4)]
    first, second, third, fourth = (lambda rank=rank: movers.execute_on(rank) for rank in range(NUM_WORKERS))
    puts = [
        first().put_sync(channel, keys[0], each),
        first().put_async(channel, keys[1], each),
        second().put_sync(channel, keys[2], each),
        second().put_async(channel, keys[3], each),
    ]
    gets = [
        third().get_sync(channel, keys[1], each),
        third().get_async(channel, keys[0], each),
        fourth().get_sync(channel, keys[2], each),
        fourth().get_async(channel, keys[3], each),
    ]
    found = [items for get in gets for items in get.wait(timeout=200)[0]]
    for put in puts:
        put.wait(timeout=60)
    assert len(found) == NUM_KEYS
    for items in found:
        key = items[0][0]
        assert items == [(key, number) for number in range(each)]
    assert all(channel.empty(key) for key in range(0, NUM_KEYS, 97))
    channel.close()


def test_users_of_one_key_get_every_item_once(movers: WorkerGroup[Any], unique: str) -> None:
    channel = Channel.create(unique, maxsize=3)
    count = 300
    puts = [movers.execute_on(0).put_sync(channel, ["k"], count), movers.execute_on(1).put_async(channel, ["k"], count)]
    gets = [movers.execute_on(2).get_sync(channel, ["k"], count), movers.execute_on(3).get_async(channel, ["k"], count)]
    taken = [number for get in gets for _, number in get.wait(timeout=120)[0][0]]
    for put in puts:
        put.wait(timeout=60)
    assert sorted(taken) == sorted(list(range(count)) * 2)
    channel.close()


def test_a_local_channel_under_threads_and_loops(unique: str) -> None:
    channel = Channel.create(unique, maxsize=5, local=True)
    each, keys, got = 50, range(40), defaultdict(list)

    def put(mine: Any) -> None:
        for number in range(each):
            for key in mine:
                channel.put(number, key=key)

    async def get_async(mine: Any) -> None:
        async def drain(key: Any) -> None:
            for _ in range(each):
                got[key].append(await channel.get(key=key, async_op=True).async_wait())

        await asyncio.gather(*(drain(key) for key in mine))

    def get(mine: Any) -> None:
        for _ in range(each):
            for key in mine:
                got[key].append(channel.get(key=key))

    jobs = [threading.Thread(target=put, args=(keys[start::4],)) for start in range(4)]
    jobs += [threading.Thread(target=get, args=(keys[start::4],)) for start in range(2)]
    jobs += [
        threading.Thread(target=lambda mine: asyncio.run(get_async(mine)), args=(keys[start::4],)) for start in (2, 3)
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join(timeout=120)
    assert got == {key: list(range(each)) for key in keys}
    channel.close()
