"""Channels between processes."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from sample_workers import Sample

from rlinf.errors import ChannelClosedError, ClusterError, CommTimeoutError, WorkerDiedError, WorkerError
from rlinf.scheduler import Channel, Cluster, NodePlacementStrategy, WorkerGroup


@pytest.fixture(scope="module")
def users(cluster: Cluster) -> Iterator[WorkerGroup[Any]]:
    group = Sample.create_group().launch(cluster, NodePlacementStrategy([0, 0]), name="users")
    yield group
    group.close()


@pytest.fixture(params=[False, True], ids=["hosted", "local"])
def channel(cluster: Cluster, unique: str, request: pytest.FixtureRequest) -> Iterator[Channel]:
    made = Channel.create(unique, maxsize=3, local=request.param)
    yield made
    made.close()


def test_fifo_keys_and_sizes(channel: Channel) -> None:
    for index in range(3):
        channel.put(index)
    channel.put("other", key="k")
    assert (channel.qsize(), channel.qsize("k"), channel.full(), channel.empty("z")) == (3, 1, True, True)
    assert [channel.get() for _ in range(3)] == [0, 1, 2]
    assert channel.get(key="k") == "other"


def test_items_are_looked_at_and_stay(channel: Channel) -> None:
    assert channel.peek_all() == []
    large = np.arange(1 << 19)
    channel.put("first")
    channel.put(large)
    channel.put("other", key="k")
    for _ in range(2):
        first, second = channel.peek_all()
        assert first == "first"
        assert np.array_equal(second, large)
    assert channel.peek_all("k") == ["other"]
    assert (channel.qsize(), channel.get()) == (2, "first")
    assert np.array_equal(channel.get(), large)
    assert channel.peek_all() == []


def test_a_full_queue_blocks_or_raises(channel: Channel) -> None:
    for index in range(3):
        channel.put(index)
    with pytest.raises(asyncio.QueueFull):
        channel.put_nowait(3)
    waiting = channel.put(3, async_op=True)
    assert not waiting.done()
    assert channel.get() == 0
    waiting.wait(timeout=10)
    assert [channel.get() for _ in range(3)] == [1, 2, 3]


def test_get_nowait_and_time_outs_lose_nothing(channel: Channel) -> None:
    with pytest.raises(asyncio.QueueEmpty):
        channel.get_nowait()
    with pytest.raises(CommTimeoutError, match="nothing came within"):
        channel.get(timeout=0.1)
    channel.put("kept")
    assert channel.get(timeout=10) == "kept"


def test_batches_stop_at_the_target_weight(channel: Channel) -> None:
    for weight in (2, 2, 5):
        channel.put(weight, weight=weight)
    assert channel.get_batch(3) == [2, 2]
    assert channel.get_batch(1) == [5]
    with pytest.raises(ValueError, match="weight"):
        channel.put(1, weight=0)


def test_published_arguments_of_a_channel(cluster: Cluster, unique: str, monkeypatch: pytest.MonkeyPatch) -> None:
    unused = []
    monkeypatch.setattr("rlinf.scheduler.channel.channel.note_unused", lambda argument, why: unused.append(argument))
    shared = Channel.create(name=unique, maxsize=2, distributed=True, node_rank=0, disable_distributed_log=False)
    local = Channel.create(f"{unique}l", 2, local=True)
    assert (shared.is_local, local.is_local, shared.maxsize, local.maxsize) == (False, True, 2, 2)
    local.close()
    assert unused == [f"Channel.create({name}=)" for name in ("distributed", "node_rank", "disable_distributed_log")]
    shared.close()


def test_a_weight_of_0_at_once_counts_as_1(channel: Channel) -> None:
    channel.put_nowait("a", 0)
    channel.put_nowait("b", weight=0, key="default")
    channel.put_nowait("c", weight=3)
    assert channel.get_batch(2) == ["a", "b"]
    assert channel.get_batch(3) == ["c"]


def test_a_closed_channel_drains_then_raises(channel: Channel) -> None:
    channel.put(1)
    waiting = channel.get(key="empty", async_op=True)
    channel.close()
    with pytest.raises(ChannelClosedError):
        waiting.wait(timeout=10)
    assert channel.get() == 1
    with pytest.raises(ChannelClosedError):
        channel.get()
    with pytest.raises(ChannelClosedError):
        channel.put(2)


def test_every_request_gets_its_own_answer(channel: Channel) -> None:
    async def scenario() -> tuple[list[Any], list[None]]:
        gets = [channel.get(async_op=True) for _ in range(6)]
        puts = [channel.put(index, async_op=True) for index in range(6)]
        return [await get.async_wait() for get in gets], [await put.async_wait() for put in puts]

    assert asyncio.run(scenario()) == (list(range(6)), [None] * 6)


def test_a_cancelled_get_takes_nothing(channel: Channel) -> None:
    async def scenario() -> None:
        task = asyncio.ensure_future(channel.get(async_op=True).async_wait())
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())
    channel.put("kept")
    assert channel.get(timeout=10) == "kept"


def test_workers_share_a_channel_sync_and_async(users: WorkerGroup[Any], unique: str) -> None:
    channel = Channel.create(unique, maxsize=2)
    producers = users.put_items(channel, list(range(20)))
    pending = users.execute_on(0).get_items_async(channel, 20)
    mine = [channel.get(timeout=60) for _ in range(20)]
    producers.wait()
    assert sorted(mine + pending.wait()[0]) == sorted(list(range(20)) * 2)
    channel.close()


def test_channels_are_found_by_name(users: WorkerGroup[Any], unique: str) -> None:
    reading = users.execute_on(1).read_channel(unique)
    users.execute_on(0).make_channel(unique).wait()
    assert reading.wait() == ["from the creator"]
    with pytest.raises(ClusterError, match="exists"):
        Channel.create(unique)


def test_a_local_channel_does_not_travel(unique: str) -> None:
    import pickle

    with pytest.raises(TypeError, match="local"):
        pickle.dumps(Channel.create(unique, local=True))


def test_a_get_ends_when_the_producer_of_its_key_dies(launch: Callable[..., Any], unique: str) -> None:
    channel = Channel.create(unique)
    producer = launch(Sample.create_group(), ranks=1)
    consumer = launch(Sample.create_group(), ranks=1)
    producer.put_items(channel, [1], key="a").wait()
    channel.put("mine", key="b")
    blocked = consumer.get_items(channel, 2, key="a")
    other = channel.get(key="c", async_op=True)
    channel.put("x", key="c")
    with pytest.raises(WorkerDiedError):
        producer.die().wait()
    with pytest.raises(WorkerDiedError):
        blocked.wait()
    assert (channel.get(key="b"), other.wait()) == ("mine", "x")


def test_an_item_granted_to_a_dead_consumer_is_not_lost(launch: Callable[..., Any], unique: str) -> None:
    channel = Channel.create(unique)
    consumer = launch(Sample.create_group(), ranks=1)
    waiting = consumer.get_items(channel, 1)
    consumer.later(None).wait()
    os.kill(consumer.worker_info_list[0].pid, signal.SIGKILL)
    with pytest.raises(WorkerDiedError):
        waiting.wait()
    channel.put("kept")
    assert channel.get(timeout=30) == "kept"


def test_shards_between_groups_of_unequal_size(
    users: WorkerGroup[Any], launch: Callable[..., Any], unique: str
) -> None:
    channel = Channel.create(unique)
    three = launch(Sample.create_group(), ranks=3)
    batch = [{"x": [0, 1, 2], "y": [3, 4, 5]}, {"x": [6, 7, 8], "y": [9, 10, 11]}]
    sent = users.spread(three.name, channel, batch)
    got = three.collect("users", channel).wait()
    sent.wait()
    assert [shard["x"] for shard in got] == [[0, 1], [2, 6], [7, 8]]
    back = three.spread("users", channel, got)
    assert users.collect(three.name, channel).wait() == batch
    back.wait()
    unequal = users.spread(three.name, channel, [{"x": [0, 1, 2]}, {"x": [3, 4, 5, 6, 7, 8]}])
    with pytest.raises(WorkerError, match=r"sent parts of different lengths \[3, 6\]"):
        three.collect("users", channel).wait()
    unequal.wait()
