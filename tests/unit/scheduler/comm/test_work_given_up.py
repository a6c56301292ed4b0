"""Work and continuations that are given up leave nothing behind."""

import asyncio
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from given_up_nodes import ME, Inbox, Node, _cancel

from rlinf.errors import CommTimeoutError, WorkerDiedError
from rlinf.scheduler import Channel
from rlinf.scheduler.comm.futures import Promise
from rlinf.scheduler.comm.mailbox import MessageHeader
from rlinf.scheduler.comm.serialization import encode
from rlinf.scheduler.comm.work import AsyncWork, gather
from rlinf.scheduler.messaging import Messenger


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    made = Node()
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


def test_a_given_up_gather_gives_back_all_and_a_given_up_continuation_its_source(source: Any) -> None:
    both = gather([source.get(async_op=True) for _ in range(2)], list, "both")
    source.put("first")
    asyncio.run(_cancel(both))
    never = []
    asyncio.run(_cancel(source.get(async_op=True).then(never.append) if source.get() == "first" else None))
    asyncio.run(_cancel(source.get(async_op=True).map(never.append)))
    source.put("second")
    assert source.get(timeout=20) == "second"
    assert never == []


def test_a_tag_that_is_used_once_leaves_nothing(node: Node) -> None:
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


def test_a_given_back_message_of_a_dead_worker_is_dropped(node: Node) -> None:
    inbox = Inbox(node.runtime)
    work = inbox.get(async_op=True)
    inbox.put("old")
    node.runtime.mailbox.source_died(inbox._source, 1, WorkerDiedError("gone"))
    dropped = node.runtime.mailbox.num_dropped
    work.give_up()
    assert node.runtime.mailbox.num_dropped == dropped + 1
    assert not [key for key in node.runtime.mailbox._arrived if key[0] == inbox._source]


# Continuations


def test_a_continuation_that_waits_holds_up_no_other() -> None:
    first, second, reached = Promise(), Promise(), threading.Event()
    waiting = AsyncWork(first).then(lambda _: reached.wait(20))
    nested = AsyncWork(second).then(lambda _: AsyncWork(third).then(lambda value: value + 1).wait(timeout=20))
    third = Promise()
    for promise in (first, second, third):
        promise.set_result(1)
    assert nested.wait(timeout=20) == 2
    reached.set()
    assert waiting.wait(timeout=20) is True


def test_continuations_reuse_their_threads() -> None:
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


def test_a_script_ends_while_a_continuation_waits() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout == "waits\n"
