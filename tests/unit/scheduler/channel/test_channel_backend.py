"""Waits of channels that are given up lose nothing, keep the order, and leave nothing behind."""

import asyncio
import gc
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import pytest
from given_up_nodes import Inbox, Node, _cancel, _cancel_now, give_up, num_queues, until

from rlinf.errors import ChannelClosedError, CommTimeoutError, WorkerDiedError
from rlinf.scheduler import Channel
from rlinf.scheduler.channel.channel_backend import HostedBackend
from rlinf.scheduler.comm.serialization import encode


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    made = Node()
    yield made
    made.close()


@pytest.fixture(params=["hosted", "local"])
def channel(node: Node, request: pytest.FixtureRequest) -> Iterator[Channel]:
    made = node.channel() if request.param == "hosted" else Channel.create(uuid.uuid4().hex, local=True)
    yield made
    made.close()


@pytest.fixture(params=["hosted", "local", "messages"])
def source(node: Node, request: pytest.FixtureRequest) -> Iterator[Inbox | Channel]:
    if request.param == "messages":
        yield Inbox(node.runtime)
        return
    made = node.channel() if request.param == "hosted" else Channel.create(uuid.uuid4().hex, local=True)
    yield made
    made.close()


def test_an_item_that_came_to_a_cancelled_wait_is_there_for_the_next(source: Any) -> None:
    asyncio.run(give_up(source.get(async_op=True), lambda: source.put("first")))
    source.put("second")
    assert [source.get(timeout=20) for _ in range(2)] == ["first", "second"]


def test_polling_with_time_outs_as_long_as_the_items_are_apart_loses_none(source: Any) -> None:
    count, seconds = 60, 0.005

    def feed() -> None:
        for number in range(count):
            time.sleep(seconds)
            source.put(number)

    async def poll() -> list[Any]:
        got = []
        while len(got) < count:
            try:
                got.append(await asyncio.wait_for(source.get(async_op=True).async_wait(), seconds))
            except TimeoutError:
                if len(got) % 7 == 3:
                    time.sleep(2 * seconds)  # a loop that is busy now and then
        return got

    feeding = threading.Thread(target=feed)
    feeding.start()
    assert asyncio.run(asyncio.wait_for(poll(), 100)) == list(range(count))
    feeding.join()


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 0, 2]])
def test_several_given_up_waits_give_back_in_the_old_order(source: Any, order: list[int]) -> None:
    works = [source.get(async_op=True) for _ in range(3)]
    for number in range(4):
        source.put(number)
    for work in works:
        until(work.done)
    for place in order:
        works[place].give_up()
    assert [source.get(timeout=20) for _ in range(4)] == [0, 1, 2, 3]


def test_what_is_given_back_goes_to_who_waits_already(source: Any) -> None:
    first, second = (source.get(async_op=True) for _ in range(2))
    source.put("one")
    until(first.done)
    first.give_up()
    assert second.wait(timeout=20) == "one"
    with pytest.raises(CancelledError):
        first.wait()


def interrupt_main_thread(after: float) -> None:
    threading.Timer(after, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()


def test_an_interrupted_get_takes_nothing(source: Any) -> None:
    interrupt_main_thread(0.1)
    with pytest.raises(KeyboardInterrupt):
        source.get(timeout=60)
    source.put("first")
    source.put("second")
    assert [source.get(timeout=20) for _ in range(2)] == ["first", "second"]


def test_an_interrupt_while_the_item_is_unpacked_loses_none(node: Node) -> None:
    channel = node.channel()
    channel.put(_Interrupting())
    with pytest.raises(KeyboardInterrupt):
        channel.get(timeout=20)
    assert channel.get(timeout=20) == "unpacked"


class _Interrupting:
    interrupted = False

    def __reduce__(self) -> Any:
        return _unpack, ()


def _unpack() -> str:
    if not _Interrupting.interrupted:
        _Interrupting.interrupted = True
        raise KeyboardInterrupt
    return "unpacked"


def test_dropped_work_takes_nothing(source: Any) -> None:
    source.get(async_op=True)
    source.put("first")
    ended = source.get(async_op=True)
    until(ended.done)
    del ended
    source.put("second")
    assert [source.get(timeout=20) for _ in range(2)] == ["first", "second"]


def test_dropped_work_makes_way_for_who_waits_already(source: Any) -> None:
    ended, waiting = (source.get(async_op=True) for _ in range(2))
    source.put("one")
    until(ended.done)
    del ended
    assert waiting.wait(timeout=20) == "one"


def test_a_batch_that_is_given_up_goes_back(channel: Any) -> None:
    channel.put("first")
    asyncio.run(_cancel(channel.get_batch(2, async_op=True)))
    channel.put("second")
    assert channel.get_batch(2, timeout=20) == ["first", "second"]


@pytest.fixture(params=["hosted", "local"])
def narrow(node: Node, request: pytest.FixtureRequest) -> Iterator[Channel]:
    made = node.channel(1) if request.param == "hosted" else Channel.create(uuid.uuid4().hex, maxsize=1, local=True)
    yield made
    made.close()


def test_a_put_that_was_given_up_puts_none(narrow: Any) -> None:
    narrow.put("first")
    asyncio.run(_cancel(narrow.put("second", async_op=True)))
    interrupt_main_thread(0.1)
    with pytest.raises(KeyboardInterrupt):
        narrow.put("third")
    # Accepted, but the waiting task does not know yet.
    asyncio.run(give_up(narrow.put("fourth", async_op=True), lambda: narrow.get(timeout=20)))
    narrow.put("fifth")
    assert narrow.get(timeout=20) == "fifth"
    assert narrow.qsize() == 0


def test_a_put_whose_work_is_dropped_puts(narrow: Any) -> None:
    narrow.put("first")
    narrow.put("second", async_op=True)
    gc.collect()
    assert [narrow.get(timeout=20) for _ in range(2)] == ["first", "second"]


def test_giving_up_a_put_leaves_a_get_of_the_same_process_alone(node: Node) -> None:
    """Both are requests of one process: they must not be taken for each other."""
    channel = node.channel(1)
    waiting = [channel.get(key=key, async_op=True) for key in range(50)]
    for key in range(50):
        channel.put("full", key="full") if not key else None
        asyncio.run(_cancel_now(channel.put("more", key="full", async_op=True)))
    for key in range(50):
        channel.put(key, key=key)
    assert [work.wait(timeout=20) for work in waiting] == list(range(50))
    channel.close()


# What is left behind


def test_time_outs_and_cancellations_leave_nothing_at_either_side(node: Node) -> None:
    channel = node.channel()
    for _ in range(20):
        with pytest.raises(CommTimeoutError, match="nothing came within"):
            channel.get(timeout=0.001)
        asyncio.run(_cancel_now(channel.get(async_op=True)))
        channel.get(async_op=True)
    channel.put(1)
    assert channel.get(timeout=600) == 1
    endpoint = node.runtime.endpoint
    until(lambda: not endpoint._pending)
    assert len(endpoint.deadlines) == 0
    queue = node.host._queues[channel._backend.channel_id]
    until(lambda: not queue.describe()["keys"] and not queue._granted)
    channel.close()


def test_a_timed_get_does_not_keep_its_item(node: Node) -> None:
    channel = node.channel()
    reference_counts = node.runtime.endpoint.segments.reference_counts
    for _ in range(3):
        channel.put(np.zeros(1 << 20, np.uint8))
        assert channel.get(timeout=600).nbytes == 1 << 20
    until(lambda: (reference_counts.settle(), len(reference_counts) == 0)[1])
    channel.close()


def test_timed_gets_of_local_channels_share_one_thread() -> None:
    channel = Channel.create(uuid.uuid4().hex, local=True)
    before = threading.active_count()
    works = [channel.get(key=key, async_op=True, timeout=0.2 + key / 1000) for key in range(100)]
    assert threading.active_count() <= before + 1
    for work in works:
        with pytest.raises(CommTimeoutError):
            work.wait(timeout=20)
    channel.close()


def test_a_closed_channel_goes_when_it_is_drained(node: Node) -> None:
    before = num_queues(node)
    channel = node.channel()
    channel.put("left")
    channel.close()
    assert num_queues(node) == before + 1
    assert channel.qsize() == 1
    assert channel.get(timeout=20) == "left"
    until(lambda: num_queues(node) == before)
    with pytest.raises(ChannelClosedError):
        channel.get(timeout=20)
    with pytest.raises(ChannelClosedError):
        channel.put(1)
    assert channel.qsize() == 0
    channel.close()


def test_what_is_left_in_a_closed_channel_goes_with_its_last_handle(node: Node) -> None:
    before = num_queues(node)
    reference_counts = node.runtime.endpoint.segments.reference_counts
    channel = node.channel()
    channel.put(np.zeros(1 << 20, np.uint8))
    channel.close()
    again = Channel("c", 0, HostedBackend(channel._backend.host, channel._backend.channel_id))
    del channel
    assert again.qsize() == 1, "a handle is left"
    del again
    gc.collect()
    until(lambda: num_queues(node) == before)
    until(lambda: (reference_counts.settle(), len(reference_counts) == 0)[1])


def test_a_closed_channel_waits_for_those_it_was_given_to(node: Node) -> None:
    import pickle

    before = num_queues(node)
    channel = node.channel()
    channel.put("for them")
    message = pickle.dumps(channel)
    channel.close()
    del channel
    gc.collect()
    node.runtime.endpoint.query(node.other.endpoint.info, "channel_size", "a later message", "key")
    assert num_queues(node) == before + 1
    theirs = pickle.loads(message)
    assert theirs.get(timeout=20) == "for them"
    until(lambda: num_queues(node) == before)


def test_a_closed_channel_goes_with_the_last_process_that_holds_it(node: Node) -> None:
    before = num_queues(node)
    holder = node.start("holder")
    channel_id = uuid.uuid4().hex
    holder.endpoint.query(node.other.endpoint.info, "channel_create", channel_id, "c", 0)
    holder.endpoint.notify(node.other.endpoint.info, "channel_open", (channel_id,))
    put = (channel_id, "key", 1, True)
    holder.endpoint.request(node.other.endpoint.info, "channel_put", put, encode("x")).result(timeout=20)
    holder.endpoint.query(node.other.endpoint.info, "channel_close", channel_id)
    assert num_queues(node) == before + 1
    death = (None, holder.endpoint.info.uid, WorkerDiedError("gone"), False)
    node.runtime.endpoint.notify(node.other.endpoint.info, "died", death)
    until(lambda: num_queues(node) == before)
    holder.close()
