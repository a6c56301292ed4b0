"""Requests and messages between two endpoints of one process."""

import threading
import uuid
from concurrent.futures import Future

import pytest

from rlinf.errors import CommTimeoutError, RLinfError, WorkerDiedError
from rlinf.scheduler.comm.endpoint import Endpoint
from rlinf.scheduler.comm.mailbox import Mailbox, MessageHeader
from rlinf.scheduler.comm.transport import new_keys, remove_socket_folder
from rlinf.scheduler.comm.work import AsyncWork, finished, gather


@pytest.fixture
def make():
    namespace = uuid.uuid4().hex[:8]
    keys = new_keys()
    made = []

    def endpoint(node="n0", listen=None, keys=keys):
        made.append(Endpoint(namespace=namespace, node_id=node, keys=keys, listen_ip=listen))
        return made[-1]

    yield endpoint
    for entry in made:
        entry.close()
    remove_socket_folder(namespace)


@pytest.mark.parametrize("nodes", [("n0", "n0"), ("n0", "n1")], ids=["same node", "other node"])
def test_requests_replies_and_errors(make, nodes):
    client, server = (make(node, "127.0.0.1") for node in nodes)
    server.serve("double", lambda call: call.reply(call.args[0] * 2, call.frames))

    def refuse(call):
        raise WorkerDiedError("no", group="g", rank=3)

    server.serve("refuse", refuse)
    reply = client.request(server.info, "double", (21,), [b"payload" * 10_000]).result(timeout=20)
    assert reply.value == 42
    assert bytes(reply.frames[0]) == b"payload" * 10_000
    with pytest.raises(WorkerDiedError) as caught:
        client.query(server.info, "refuse", timeout=20)
    assert caught.value.rank == 3
    with pytest.raises(RLinfError, match="does not serve"):
        client.query(server.info, "unknown", timeout=20)
    assert client.query(server.info, "double", 1, timeout=20) == 2, "an error in a handler must not end the server"


def _explode():
    raise ModuleNotFoundError("No module named 'only_on_the_other_side'")


class _Unreadable:
    def __reduce__(self):
        return _explode, ()


class _UnreadableError(RuntimeError):
    def __reduce__(self):
        return _explode, ()


@pytest.mark.parametrize("nodes", [("n0", "n0"), ("n0", "n1")], ids=["same node", "other node"])
def test_what_cannot_be_read_here_ends_its_request_and_nothing_else(make, nodes):
    client, server = (make(node, "127.0.0.1") for node in nodes)
    server.serve("echo", lambda call: call.reply(call.args[0]))
    server.serve("give", lambda call: call.reply(_Unreadable()))

    def refuse(call):
        raise _UnreadableError("told in words")

    server.serve("refuse", refuse)
    with pytest.raises(RLinfError, match=r"request of .* cannot be read.*only_on_the_other_side"):
        client.query(server.info, "echo", _Unreadable(), timeout=20)
    with pytest.raises(RLinfError, match=r"answer of .* cannot be read.*only_on_the_other_side"):
        client.query(server.info, "give", timeout=20)
    with pytest.raises(RLinfError, match="told in words"):
        client.query(server.info, "refuse", timeout=20)
    client.notify(server.info, "echo", (_Unreadable(),))
    client._transport.send(server.info, [b"no header"])
    client._transport.send(server.info, [])
    assert client.query(server.info, "echo", 1, timeout=20) == 1, "one bad message must not end the server"


def test_a_stranger_without_the_key_is_not_heard(make):
    server = make("n1", "127.0.0.1")
    heard = []
    server.serve("hello", lambda call: (heard.append(1), call.reply()))
    stranger = make("n0", "127.0.0.1", keys=new_keys())
    pending = stranger.request(server.info, "hello")
    with pytest.raises(TimeoutError):
        pending.result(timeout=1.0)
    assert heard == []


def test_sockets_lie_in_a_private_folder(make):
    from pathlib import Path

    path = Path(make().info.ipc.removeprefix("ipc://"))
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_the_death_of_a_peer_ends_requests_now_and_later(make):
    client, server = make(), make()
    server.serve("never", lambda call: None)
    pending = client.request(server.info, "never")
    client.peer_died(server.info.uid, WorkerDiedError("gone"))
    with pytest.raises(WorkerDiedError):
        pending.result(timeout=10)
    with pytest.raises(WorkerDiedError):
        client.request(server.info, "never").result(timeout=10)


def test_closing_ends_pending_requests(make):
    client, server = make(), make()
    server.serve("never", lambda call: None)
    pending = client.request(server.info, "never")
    client.close()
    with pytest.raises(RLinfError, match="closed"):
        pending.result(timeout=10)


@pytest.fixture
def mailbox(make):
    return Mailbox("me:0", make().loop)


def letter(sequence, tag=None, incarnation=1, source=("env", 0)):
    return MessageHeader(source, incarnation, sequence, tag)


def test_a_receive_ends_once_with_message_death_or_timeout(mailbox):
    first = mailbox.receive(("env", 0), None, None)
    mailbox.deliver(letter(0), ["a"])
    assert first.result(timeout=5) == ["a"]
    late = mailbox.receive(("env", 0), "x", 0.05)
    with pytest.raises(CommTimeoutError, match="me:0 has waited since .* with tag 'x' from env:0"):
        late.result(timeout=10)
    waiting = mailbox.receive(("env", 0), None, 30)
    mailbox.source_died(("env", 0), 1, WorkerDiedError("gone"))
    with pytest.raises(WorkerDiedError):
        waiting.result(timeout=5)
    mailbox.deliver(letter(1), ["late"])
    assert mailbox.num_dropped == 1


def test_a_cancelled_receive_takes_no_message(mailbox):
    mailbox.receive(("env", 0), None, None).cancel()
    mailbox.deliver(letter(0), ["a"])
    assert mailbox.receive(("env", 0), None, None).result(timeout=5) == ["a"]


def test_a_new_incarnation_replaces_the_old(mailbox):
    mailbox.deliver(letter(0), ["old"])
    mailbox.source_started(("env", 0), 2)
    mailbox.deliver(letter(1), ["older still"])
    mailbox.deliver(letter(0, incarnation=2), ["new"])
    assert mailbox.receive(("env", 0), None, None).result(timeout=5) == ["new"]
    assert mailbox.num_dropped == 2


def test_a_gap_in_the_sequence_is_an_error_not_a_silence(mailbox):
    waiting = mailbox.receive(("env", 0), None, None)
    mailbox.deliver(letter(2), ["third"])
    with pytest.raises(WorkerDiedError, match="2 messages were lost"):
        waiting.result(timeout=5)


def test_async_work_waits_chains_and_gathers():
    future = Future()
    converted = []
    work = AsyncWork(future, lambda value: converted.append(value) or value + 1, "the work")
    following = work.then(lambda value: value * 10)
    with pytest.raises(CommTimeoutError, match="the work did not end"):
        work.wait(timeout=0.01)
    threading.Timer(0.02, future.set_result, (1,)).start()
    assert following.wait(timeout=10) == 20
    assert work.wait() == 2
    assert work.done()
    assert converted == [1], "conversion runs once"
    assert gather([finished(1), work], sum, "both").wait() == 3
    failing = finished(1).then(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        gather([failing, AsyncWork(Future())], sum, "one fails").wait(timeout=10)
