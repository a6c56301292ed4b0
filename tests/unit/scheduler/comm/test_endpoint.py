"""Requests between two endpoints of one process."""

from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from rlinf.errors import RLinfError, WorkerDiedError
from rlinf.scheduler.comm.transport import new_keys


@pytest.mark.parametrize("nodes", [("n0", "n0"), ("n0", "n1")], ids=["same node", "other node"])
def test_requests_replies_and_errors(make: Callable[..., Any], nodes: tuple[str, str]) -> None:
    client, server = (make(node, "127.0.0.1") for node in nodes)
    server.serve("double", lambda call: call.reply(call.args[0] * 2, call.frames))

    def refuse(call: Any) -> NoReturn:
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


def _explode() -> NoReturn:
    raise ModuleNotFoundError("No module named 'only_on_the_other_side'")


class _Unreadable:
    def __reduce__(self) -> Any:
        return _explode, ()


class _UnreadableError(RuntimeError):
    def __reduce__(self) -> Any:
        return _explode, ()


@pytest.mark.parametrize("nodes", [("n0", "n0"), ("n0", "n1")], ids=["same node", "other node"])
def test_what_cannot_be_read_here_ends_its_request_and_nothing_else(
    make: Callable[..., Any], nodes: tuple[str, str]
) -> None:
    client, server = (make(node, "127.0.0.1") for node in nodes)
    server.serve("echo", lambda call: call.reply(call.args[0]))
    server.serve("give", lambda call: call.reply(_Unreadable()))

    def refuse(call: Any) -> NoReturn:
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


def test_a_stranger_without_the_key_is_not_heard(make: Callable[..., Any]) -> None:
    server = make("n1", "127.0.0.1")
    heard = []
    server.serve("hello", lambda call: (heard.append(1), call.reply()))
    stranger = make("n0", "127.0.0.1", keys=new_keys())
    pending = stranger.request(server.info, "hello")
    with pytest.raises(TimeoutError):
        pending.result(timeout=1.0)
    assert heard == []


def test_sockets_lie_in_a_private_folder(make: Callable[..., Any]) -> None:
    from pathlib import Path

    path = Path(make().info.ipc.removeprefix("ipc://"))
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_the_death_of_a_peer_ends_requests_now_and_later(make: Callable[..., Any]) -> None:
    client, server = make(), make()
    server.serve("never", lambda call: None)
    pending = client.request(server.info, "never")
    client.peer_died(server.info.uid, WorkerDiedError("gone"))
    with pytest.raises(WorkerDiedError):
        pending.result(timeout=10)
    with pytest.raises(WorkerDiedError):
        client.request(server.info, "never").result(timeout=10)


def test_closing_ends_pending_requests(make: Callable[..., Any]) -> None:
    client, server = make(), make()
    server.serve("never", lambda call: None)
    pending = client.request(server.info, "never")
    client.close()
    with pytest.raises(RLinfError, match="closed"):
        pending.result(timeout=10)
