"""Connections within a node when queues are full, descriptors are short, or a socket was removed."""

import errno
import os
import resource
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from rlinf.errors import ClusterError, WorkerDiedError
from rlinf.scheduler.comm import local
from rlinf.scheduler.comm.endpoint import Endpoint
from rlinf.scheduler.comm.transport import new_keys, remove_socket_folder


@pytest.fixture
def make() -> Iterator[Callable[..., Any]]:
    namespace, keys = uuid.uuid4().hex[:8], new_keys()
    made = []

    def endpoint(**options: bool) -> Any:
        made.append(Endpoint(namespace=namespace, node_id="n0", keys=keys, listen_ip=None, **options))
        return made[-1]

    yield endpoint
    for entry in made:
        entry.close()
    remove_socket_folder(namespace)


@pytest.fixture
def server(make: Callable[..., Any]) -> Any:
    made = make()
    made.serve("echo", lambda call: call.reply(call.args[0]))
    return made


@contextmanager
def no_free_descriptors() -> Iterator[None]:
    """Leave this process no descriptor to open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, hard))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(taken[0]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


def test_more_first_connections_than_the_backlog_lose_no_message(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_BACKLOG", 1)
    server = make()
    go, paused = threading.Event(), threading.Event()
    server.serve("echo", lambda call: call.reply(call.args[0]))
    server.serve("pause", lambda call: (paused.set(), go.wait(30)))
    clients = [make() for _ in range(12)]
    clients[0].notify(server.info, "pause")
    assert paused.wait(20)
    first = [client.request(server.info, "echo", (number,)) for number, client in enumerate(clients)]
    second = [client.request(server.info, "echo", (-number,)) for number, client in enumerate(clients)]
    go.set()
    assert [future.result(timeout=20).value for future in first] == list(range(12))
    assert [future.result(timeout=20).value for future in second] == [-number for number in range(12)]


def test_a_full_backlog_does_not_hold_up_other_messages(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_BACKLOG", 0)
    busy, idle = make(), make()
    go, paused = threading.Event(), threading.Event()
    busy.serve("pause", lambda call: (paused.set(), go.wait(30)))
    busy.serve("echo", lambda call: call.reply(call.args[0]))
    idle.serve("echo", lambda call: call.reply(call.args[0]))
    clients = [make() for _ in range(4)]
    clients[0].notify(busy.info, "pause")
    assert paused.wait(20)
    waiting = [client.request(busy.info, "echo", (1,)) for client in clients]
    assert [client.query(idle.info, "echo", 2, timeout=20) for client in clients] == [2] * 4
    assert not any(future.done() for future in waiting)
    go.set()
    assert [future.result(timeout=20).value for future in waiting] == [1] * 4


def test_a_living_peer_whose_socket_was_removed_is_an_error_of_the_sender(
    make: Callable[..., Any], server: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(local, "_NEWS_SECONDS", 0.2)
    client = make()
    os.unlink(server.info.ipc)
    with pytest.raises(ClusterError, match=r"cannot be reached at .*No such file or directory"):
        client.query(server.info, "echo", 1, timeout=20)
    with pytest.raises(ClusterError, match="Cannot send to endpoint"):
        client.notify(server.info, "echo", (1,))
    assert "What was sent to it is lost" in capsys.readouterr().err


def test_a_dead_peer_is_reported_as_dead_not_as_out_of_reach(make: Callable[..., Any], server: Any) -> None:
    client = make()
    os.unlink(server.info.ipc)
    pending = client.request(server.info, "echo", (1,))
    client.peer_died(server.info.uid, WorkerDiedError("gone"))
    with pytest.raises(WorkerDiedError):
        pending.result(timeout=20)
    client.notify(server.info, "echo", (1,))


def test_a_peer_that_hangs_up_and_is_not_dead_is_an_error_of_the_sender(
    make: Callable[..., Any], server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_NEWS_SECONDS", 0.2)
    client = make()
    assert client.query(server.info, "echo", 1, timeout=20) == 1
    server.close()
    with pytest.raises(ClusterError, match="is not known to be gone, but cannot be reached"):
        client.query(server.info, "echo", 1, timeout=20)


class _Scarce:
    """A socket whose first message, and some attempts to send it later, fail for want of kernel memory."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._first = [errno.ENOBUFS]
        self._later = [errno.ENOMEM, errno.ENOBUFS] * 5

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def sendmsg(self, parts: Any) -> Any:
        self._fail(self._first)
        return self._connection.sendmsg(parts)

    def send(self, data: bytes) -> Any:
        self._fail(self._later)
        return self._connection.send(data)

    def _fail(self, codes: list[int]) -> None:
        if codes:
            code = codes.pop()
            raise OSError(code, os.strerror(code))


def test_messages_wait_while_the_kernel_has_no_memory(make: Callable[..., Any]) -> None:
    client, server = make(), make()
    got, done = [], threading.Event()
    server.serve("note", lambda call: (got.append(call.args[0]), done.set() if call.args[0] == 5 else None))
    client.notify(server.info, "note", (0,))
    peer = client._transport._local._peers[server.info.uid]
    peer._socket = _Scarce(peer._socket)
    for number in range(1, 6):
        client.notify(server.info, "note", (number,))
    assert done.wait(20)
    assert got == list(range(6))


def test_requests_are_answered_once_descriptors_are_free_again(make: Callable[..., Any], server: Any) -> None:
    client = make()
    with no_free_descriptors():
        first = client.request(server.info, "echo", (1,))
        second = client.request(server.info, "echo", (2,))
    assert [first.result(timeout=20).value, second.result(timeout=20).value] == [1, 2]


def test_the_accept_loop_waits_for_a_free_descriptor(
    make: Callable[..., Any], server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = []
    accept = local.LocalSockets._accept
    monkeypatch.setattr(local.LocalSockets, "_accept", lambda self: (attempts.append(1), accept(self)))
    client = make()
    # Some may still find a descriptor that another thread has just freed.
    strangers = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(12)]
    with no_free_descriptors():
        for stranger in strangers:
            stranger.connect(server.info.ipc)
        time.sleep(0.5)
        refused = len(attempts)
    assert 1 <= refused < 100
    assert client.query(server.info, "echo", 1, timeout=20) == 1
    assert len(attempts) - refused >= 2, "the connection that waited was accepted too"
    for stranger in strangers:
        stranger.close()


def test_a_wait_that_ends_wakes_no_other_thread(
    make: Callable[..., Any], server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make(read_while_waiting=True)
    client.query(server.info, "echo", 0, timeout=20)
    woken = []
    monkeypatch.setattr(client.loop, "call_soon_threadsafe", lambda *call: woken.append(call))
    for number in range(5):
        assert client.query(server.info, "echo", number, timeout=20) == number
        time.sleep(0.01)
    monkeypatch.undo()
    assert woken == []


@pytest.mark.parametrize("pause", [0.0, 0.0005, 0.001, 0.0015])
def test_messages_are_read_after_a_wait_although_no_other_follows(
    make: Callable[..., Any], server: Any, pause: float
) -> None:
    client = make(read_while_waiting=True)
    heard = threading.Semaphore(0)
    client.serve("tell", lambda call: heard.release())
    for number in range(30):
        client.query(server.info, "echo", number, timeout=20)
        time.sleep(pause)  # about as long as reading stays with the thread that has waited
        server.notify(client.info, "tell")
        assert heard.acquire(timeout=20)


def test_a_wait_that_times_out_gives_reading_back(make: Callable[..., Any], server: Any) -> None:
    client = make(read_while_waiting=True)
    heard = threading.Event()
    client.serve("tell", lambda call: heard.set())
    with pytest.raises(TimeoutError):
        client.promise().result(timeout=0.05)
    server.notify(client.info, "tell")
    assert heard.wait(20)
