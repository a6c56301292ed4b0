"""What cannot be sent, or is given up before it is sent, is an error of its send and leaves nothing."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future as PlainFuture
from typing import Any, NoReturn

import pytest
from given_up_nodes import ME, Node, _cancel_now, until

from rlinf.errors import ClusterError, CommTimeoutError
from rlinf.scheduler.address import WorkerAddress, WorkerInfo
from rlinf.scheduler.comm.outbox import Outbox
from rlinf.scheduler.comm.serialization import encode
from rlinf.scheduler.messaging import Messenger
from rlinf.scheduler.runtime import Runtime


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    made = Node()
    yield made
    made.close()


# Sends


@pytest.fixture
def outbox(node: Node) -> Iterator[tuple[Outbox, Callable[[], None], Runtime]]:
    """An outbox whose destination is told when the test says so, and the receiving runtime."""
    receiver = node.start("receiver")
    found = PlainFuture()
    made = Outbox(ME, node.runtime.endpoint, lambda group, rank, wait: found)
    info = WorkerInfo(WorkerAddress("env", 0, 1), 0, 0, "", 0, (), (), receiver.endpoint.info)
    yield made, (lambda: found.set_result(info)), receiver
    receiver.close()


def test_a_first_message_with_a_bad_tag_is_an_error_at_once(outbox: Any) -> None:
    outbox, resolve, receiver = outbox
    with pytest.raises((TypeError, AttributeError)):
        outbox.send("env", 0, lambda: None, encode("x"))
    good = outbox.send("env", 0, "t", encode("y"))
    resolve()
    good.result(timeout=20)
    assert bytes(receiver.mailbox.receive(("me", 0), "t", 20).result(timeout=20)[0]) == encode("y")[0]


def test_a_send_that_is_given_up_before_its_group_is_launched_sends_nothing(
    node: Node, outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_message_that_cannot_leave_is_an_error_of_its_send(
    node: Node, outbox: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox, resolve, _ = outbox

    def refuse(*_: Any) -> NoReturn:
        raise ClusterError("no way")

    queued = outbox.send("env", 0, "t", encode("x"))
    monkeypatch.setattr(node.runtime.endpoint, "notify", refuse)
    resolve()
    with pytest.raises(ClusterError, match="no way"):
        queued.result(timeout=20)


def test_values_that_cannot_be_pickled_leave_no_shared_memory(node: Node) -> None:
    endpoint = node.runtime.endpoint
    until(lambda: (endpoint.segments.reference_counts.settle(), len(endpoint.segments.reference_counts) == 0)[1])
    with pytest.raises((TypeError, AttributeError)):
        endpoint.notify(node.other.endpoint.info, "data", (lambda: None,), [bytes(1 << 20)])
    endpoint.segments.reference_counts.settle()
    assert len(endpoint.segments.reference_counts) == 0
