"""Waits that are given up lose nothing, keep the order, and leave nothing behind; without Ray, in one process."""

import asyncio
import dataclasses
import gc
import signal
import subprocess
import sys
import threading
import time
import uuid
from concurrent.futures import CancelledError
from concurrent.futures import Future as PlainFuture

import numpy as np
import pytest

from rlinf.errors import ChannelClosedError, ClusterError, CommTimeoutError, WorkerDiedError
from rlinf.scheduler import Channel
from rlinf.scheduler.address import RunSpec, WorkerAddress, WorkerInfo
from rlinf.scheduler.channel.channel_backend import HostedBackend
from rlinf.scheduler.channel.host import ChannelHost
from rlinf.scheduler.comm.futures import Promise
from rlinf.scheduler.comm.mailbox import MessageHeader
from rlinf.scheduler.comm.outbox import Outbox
from rlinf.scheduler.comm.serialization import encode
from rlinf.scheduler.comm.transport import new_keys, remove_socket_folder
from rlinf.scheduler.comm.work import AsyncWork, gather
from rlinf.scheduler.messaging import Messenger
from rlinf.scheduler.runtime import Runtime, enter_runtime, leave_runtime

ME = WorkerAddress("me", 0, 1)


class Node:
    """A process's runtime and a channel host, in this process."""

    def __init__(self):
        self.spec = RunSpec(uuid.uuid4().hex[:8], new_keys(), spans_nodes=False, log_dir=None)
        self.other = self.start("channel host")
        self.host = ChannelHost(self.other)
        # All of the manager that closing a channel needs.
        self.other.endpoint.serve("channel_remove", lambda call: call.reply())
        self.spec = dataclasses.replace(self.spec, manager=self.other.endpoint.info)
        self.runtime = self.start("me")
        enter_runtime(self.runtime)

    def start(self, label):
        return Runtime(self.spec, node_id="n0", node_ip="127.0.0.1", label=label)

    def channel(self, maxsize=0):
        channel_id = uuid.uuid4().hex[:8]
        self.runtime.endpoint.query(self.other.endpoint.info, "channel_create", channel_id, "c", maxsize)
        return Channel("c", maxsize, HostedBackend(self.other.endpoint.info, channel_id))

    def close(self):
        leave_runtime(self.runtime)
        self.other.close()
        remove_socket_folder(self.spec.namespace)


@pytest.fixture(scope="module")
def node():
    made = Node()
    yield made
    made.close()


@pytest.fixture(params=["hosted", "local"])
def channel(node, request):
    made = node.channel() if request.param == "hosted" else Channel.create(uuid.uuid4().hex, local=True)
    yield made
    made.close()


class Inbox:
    """Receives and arrivals of one sender's messages, with the methods of a channel."""

    def __init__(self, runtime):
        self._mailbox = runtime.mailbox
        self._messenger = Messenger(ME)
        self._source = (uuid.uuid4().hex, 0)
        self._numbers = iter(range(1_000_000))

    def put(self, item):
        self._mailbox.deliver(MessageHeader(self._source, 1, next(self._numbers), "t"), encode(item))

    def get(self, timeout=None, async_op=False):
        work = self._messenger.recv(*self._source, tag="t", timeout=timeout)
        return work if async_op else work.wait()


@pytest.fixture(params=["hosted", "local", "messages"])
def source(node, request):
    if request.param == "messages":
        yield Inbox(node.runtime)
        return
    made = node.channel() if request.param == "hosted" else Channel.create(uuid.uuid4().hex, local=True)
    yield made
    made.close()


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


async def give_up(work, meanwhile):
    """Wait on the loop, do something that blocks the loop until the work has ended, and cancel the wait."""
    waiting = asyncio.ensure_future(work.async_wait())
    await asyncio.sleep(0.02)
    meanwhile()
    until(work.done)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


def test_an_item_that_came_to_a_cancelled_wait_is_there_for_the_next(source):
    asyncio.run(give_up(source.get(async_op=True), lambda: source.put("first")))
    source.put("second")
    assert [source.get(timeout=20) for _ in range(2)] == ["first", "second"]


def test_polling_with_time_outs_as_long_as_the_items_are_apart_loses_none(source):
    count, seconds = 60, 0.005

    def feed():
        for number in range(count):
            time.sleep(seconds)
            source.put(number)

    async def poll():
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
def test_several_given_up_waits_give_back_in_the_old_order(source, order):
    works = [source.get(async_op=True) for _ in range(3)]
    for number in range(4):
        source.put(number)
    for work in works:
        until(work.done)
    for place in order:
        works[place].give_up()
    assert [source.get(timeout=20) for _ in range(4)] == [0, 1, 2, 3]


def test_what_is_given_back_goes_to_who_waits_already(source):
    first, second = (source.get(async_op=True) for _ in range(2))
    source.put("one")
    until(first.done)
    first.give_up()
    assert second.wait(timeout=20) == "one"
    with pytest.raises(CancelledError):
        first.wait()


def interrupt_main_thread(after):
    threading.Timer(after, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()


def test_an_interrupted_get_takes_nothing(source):
    interrupt_main_thread(0.1)
    with pytest.raises(KeyboardInterrupt):
        source.get(timeout=60)
    source.put("first")
    source.put("second")
    assert [source.get(timeout=20) for _ in range(2)] == ["first", "second"]


def test_an_interrupt_while_the_item_is_unpacked_loses_none(node):
    channel = node.channel()
    channel.put(_Interrupting())
    with pytest.raises(KeyboardInterrupt):
        channel.get(timeout=20)
    assert channel.get(timeout=20) == "unpacked"


class _Interrupting:
    interrupted = False

    def __reduce__(self):
        return _unpack, ()


def _unpack():
    if not _Interrupting.interrupted:
        _Interrupting.interrupted = True
        raise KeyboardInterrupt
    return "unpacked"


def test_dropped_work_takes_nothing(source):
    source.get(async_op=True)
    source.put("first")
    ended = source.get(async_op=True)
    until(ended.done)
    del ended
    source.put("second")
    assert [source.get(timeout=20) for _ in range(2)] == ["first", "second"]


def test_dropped_work_makes_way_for_who_waits_already(source):
    ended, waiting = (source.get(async_op=True) for _ in range(2))
    source.put("one")
    until(ended.done)
    del ended
    assert waiting.wait(timeout=20) == "one"


def test_a_given_up_gather_gives_back_all_and_a_given_up_continuation_its_source(source):
    both = gather([source.get(async_op=True) for _ in range(2)], list, "both")
    source.put("first")
    asyncio.run(_cancel(both))
    never = []
    asyncio.run(_cancel(source.get(async_op=True).then(never.append) if source.get() == "first" else None))
    asyncio.run(_cancel(source.get(async_op=True).map(never.append)))
    source.put("second")
    assert source.get(timeout=20) == "second"
    assert never == []


async def _cancel(work):
    with pytest.raises((asyncio.TimeoutError, TimeoutError)):
        await asyncio.wait_for(work.async_wait(), 0.05)


def test_a_batch_that_is_given_up_goes_back(channel):
    channel.put("first")
    asyncio.run(_cancel(channel.get_batch(2, async_op=True)))
    channel.put("second")
    assert channel.get_batch(2, timeout=20) == ["first", "second"]


@pytest.fixture(params=["hosted", "local"])
def narrow(node, request):
    made = node.channel(1) if request.param == "hosted" else Channel.create(uuid.uuid4().hex, maxsize=1, local=True)
    yield made
    made.close()


def test_a_put_that_was_given_up_puts_none(narrow):
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


def test_a_put_whose_work_is_dropped_puts(narrow):
    narrow.put("first")
    narrow.put("second", async_op=True)
    gc.collect()
    assert [narrow.get(timeout=20) for _ in range(2)] == ["first", "second"]


def test_giving_up_a_put_leaves_a_get_of_the_same_process_alone(node):
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


async def _cancel_now(work):
    waiting = asyncio.ensure_future(work.async_wait())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


# What is left behind


def test_time_outs_and_cancellations_leave_nothing_at_either_side(node):
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


def test_a_timed_get_does_not_keep_its_item(node):
    channel = node.channel()
    reference_counts = node.runtime.endpoint.segments.reference_counts
    for _ in range(3):
        channel.put(np.zeros(1 << 20, np.uint8))
        assert channel.get(timeout=600).nbytes == 1 << 20
    until(lambda: (reference_counts.settle(), len(reference_counts) == 0)[1])
    channel.close()


def test_timed_gets_of_local_channels_share_one_thread():
    channel = Channel.create(uuid.uuid4().hex, local=True)
    before = threading.active_count()
    works = [channel.get(key=key, async_op=True, timeout=0.2 + key / 1000) for key in range(100)]
    assert threading.active_count() <= before + 1
    for work in works:
        with pytest.raises(CommTimeoutError):
            work.wait(timeout=20)
    channel.close()


def test_a_tag_that_is_used_once_leaves_nothing(node):
    mailbox = node.runtime.mailbox
    messenger = Messenger(ME)
    kept = [len(held) for held in (mailbox._arrived, mailbox._waiting, mailbox._untaken)]
    for tag in range(50):
        header = MessageHeader(("once", 0), 1, tag, tag)
        if tag % 2:
            mailbox.deliver(header, encode(tag))
            assert messenger.recv("once", 0, tag=tag, timeout=20).wait() == tag
        else:
            work = messenger.recv("once", 0, tag=tag, timeout=20)
            mailbox.deliver(header, encode(tag))
            assert work.wait() == tag
    with pytest.raises(CommTimeoutError):
        messenger.recv("once", 0, tag="late", timeout=0.001).wait()
    assert [len(held) for held in (mailbox._arrived, mailbox._waiting, mailbox._untaken)] == kept
    assert len(mailbox._deadlines) == 0


def test_a_given_back_message_of_a_dead_worker_is_dropped(node):
    inbox = Inbox(node.runtime)
    work = inbox.get(async_op=True)
    inbox.put("old")
    node.runtime.mailbox.source_died(inbox._source, 1, WorkerDiedError("gone"))
    dropped = node.runtime.mailbox.num_dropped
    work.give_up()
    assert node.runtime.mailbox.num_dropped == dropped + 1
    assert not [key for key in node.runtime.mailbox._arrived if key[0] == inbox._source]


# Closed channels


def num_queues(node):
    return len(node.host._queues)


def test_a_closed_channel_goes_when_it_is_drained(node):
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


def test_what_is_left_in_a_closed_channel_goes_with_its_last_handle(node):
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


def test_a_closed_channel_waits_for_those_it_was_given_to(node):
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


def test_a_closed_channel_goes_with_the_last_process_that_holds_it(node):
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


# Sends


@pytest.fixture
def outbox(node):
    """An outbox whose destination is told when the test says so, and the receiving runtime."""
    receiver = node.start("receiver")
    found = PlainFuture()
    made = Outbox(ME, node.runtime.endpoint, lambda group, rank, wait: found)
    info = WorkerInfo(WorkerAddress("env", 0, 1), 0, 0, "", 0, (), (), receiver.endpoint.info)
    yield made, (lambda: found.set_result(info)), receiver
    receiver.close()


def test_a_first_message_with_a_bad_tag_is_an_error_at_once(outbox):
    outbox, resolve, receiver = outbox
    with pytest.raises((TypeError, AttributeError)):
        outbox.send("env", 0, lambda: None, encode("x"))
    good = outbox.send("env", 0, "t", encode("y"))
    resolve()
    good.result(timeout=20)
    assert bytes(receiver.mailbox.receive(("me", 0), "t", 20).result(timeout=20)[0]) == encode("y")[0]


def test_a_send_that_is_given_up_before_its_group_is_launched_sends_nothing(node, outbox, monkeypatch):
    outbox, resolve, receiver = outbox
    monkeypatch.setattr(node.runtime, "outbox", outbox)
    given_up = Messenger(ME).send("given up", "env", 0, tag="t", timeout=60)
    late = Messenger(ME).send("late", "env", 0, tag="t", timeout=0.01)
    kept = Messenger(ME).send("kept", "env", [0], tag="t", timeout=60)
    asyncio.run(_cancel_now(given_up))
    with pytest.raises(CommTimeoutError, match="not launched"):
        late.wait(timeout=20)
    resolve()
    kept.wait(timeout=20)
    arrived = receiver.mailbox.receive(("me", 0), "t", 20).result(timeout=20)
    assert bytes(arrived[0]) == encode("kept")[0]
    assert len(node.runtime.endpoint.deadlines) == 0


def test_a_message_that_cannot_leave_is_an_error_of_its_send(node, outbox, monkeypatch):
    outbox, resolve, _ = outbox

    def refuse(*_):
        raise ClusterError("no way")

    queued = outbox.send("env", 0, "t", encode("x"))
    monkeypatch.setattr(node.runtime.endpoint, "notify", refuse)
    resolve()
    with pytest.raises(ClusterError, match="no way"):
        queued.result(timeout=20)


def test_values_that_cannot_be_pickled_leave_no_shared_memory(node):
    endpoint = node.runtime.endpoint
    until(lambda: (endpoint.segments.reference_counts.settle(), len(endpoint.segments.reference_counts) == 0)[1])
    with pytest.raises((TypeError, AttributeError)):
        endpoint.notify(node.other.endpoint.info, "data", (lambda: None,), [bytes(1 << 20)])
    endpoint.segments.reference_counts.settle()
    assert len(endpoint.segments.reference_counts) == 0


# Continuations


def test_a_continuation_that_waits_holds_up_no_other():
    first, second, reached = Promise(), Promise(), threading.Event()
    waiting = AsyncWork(first).then(lambda _: reached.wait(20))
    nested = AsyncWork(second).then(lambda _: AsyncWork(third).then(lambda value: value + 1).wait(timeout=20))
    third = Promise()
    for promise in (first, second, third):
        promise.set_result(1)
    assert nested.wait(timeout=20) == 2
    reached.set()
    assert waiting.wait(timeout=20) is True


def test_continuations_reuse_their_threads():
    names = []
    for _ in range(20):
        done = AsyncWork(Promise())
        done.future.set_result(None)
        done.then(lambda _: names.append(threading.get_ident())).wait(timeout=20)
        time.sleep(0.005)
    assert len(set(names)) <= 5


SCRIPT = """
import time
from rlinf.scheduler.comm.futures import Promise
from rlinf.scheduler.comm.work import AsyncWork
promise = Promise()
AsyncWork(promise).then(lambda _: (print("waits", flush=True), time.sleep(600)))
promise.set_result(None)
time.sleep(0.5)
"""


def test_a_script_ends_while_a_continuation_waits():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout == "waits\n"
