"""No socket of a run hears a process without the run's key, and nothing that such a process sends is unpickled."""

import os
import pickle
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from zmq.utils.monitor import recv_monitor_message

from rlinf.errors import ClusterError
from rlinf.scheduler.comm import endpoint as endpoint_module
from rlinf.scheduler.comm import folders
from rlinf.scheduler.comm import transport as transport_module
from rlinf.scheduler.comm.endpoint import Endpoint
from rlinf.scheduler.comm.transport import new_keys, remove_socket_folder

KEYS = new_keys()
NOTICE = endpoint_module._KIND.pack(endpoint_module._NOTICE, endpoint_module._NO_NUMBER)


class Bomb:
    """Leaves a mark wherever it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return open, (self.path, "w")


@pytest.fixture
def namespace() -> Iterator[str]:
    name = uuid.uuid4().hex[:8]
    yield name
    remove_socket_folder(name)


@pytest.fixture
def victim(namespace: str) -> Iterator[Endpoint]:
    endpoint = Endpoint(namespace=namespace, node_id="n1", keys=KEYS, listen_ip="127.0.0.1")
    endpoint.serve("hello", lambda call: call.reply("heard"))
    yield endpoint
    endpoint.close()


@pytest.fixture
def friend(namespace: str) -> Iterator[Endpoint]:
    endpoint = Endpoint(namespace=namespace, node_id="n0", keys=KEYS, listen_ip="127.0.0.1")
    yield endpoint
    endpoint.close()


def no_mechanism(_: zmq.Socket[bytes]) -> None:
    """ZeroMQ's NULL mechanism: no key at all."""


def a_password(peer: zmq.Socket[bytes]) -> None:
    peer.plain_username, peer.plain_password = b"admin", b"admin"


def a_key_of_its_own(peer: zmq.Socket[bytes]) -> None:
    """It knows the victim's public key, as whoever has seen it once, but not the secret one."""
    peer.curve_publickey, peer.curve_secretkey = zmq.curve_keypair()
    peer.curve_serverkey = KEYS[0]


def the_public_key_without_its_secret(peer: zmq.Socket[bytes]) -> None:
    peer.curve_publickey, peer.curve_secretkey = KEYS[0], zmq.curve_keypair()[1]
    peer.curve_serverkey = KEYS[0]


def the_wrong_server_key(peer: zmq.Socket[bytes]) -> None:
    peer.curve_publickey, peer.curve_secretkey = KEYS
    peer.curve_serverkey = zmq.curve_keypair()[0]


STRANGERS = [no_mechanism, a_password, a_key_of_its_own, the_public_key_without_its_secret, the_wrong_server_key]


def has_got_through(monitor: zmq.Socket[bytes]) -> bool:
    """Return whether the stranger has got through, once that is decided."""
    failed = (
        zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    )
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if not monitor.poll(1000):
            continue
        event = recv_monitor_message(monitor)["event"]
        if event & zmq.EVENT_HANDSHAKE_SUCCEEDED:
            return True
        if event & (failed | zmq.EVENT_DISCONNECTED):
            return False
    raise TimeoutError("the connection was neither accepted nor refused")


@pytest.mark.parametrize("disguise", STRANGERS)
@pytest.mark.parametrize("kind", [zmq.PUSH, zmq.DEALER], ids=["push", "dealer"])
def test_a_stranger_is_refused_and_its_pickle_is_never_opened(
    victim: Endpoint, friend: Endpoint, tmp_path: Path, disguise: Callable[..., Any], kind: zmq.SocketType
) -> None:
    context = zmq.Context()
    peer = context.socket(kind)
    peer.linger = 0
    disguise(peer)
    monitor = peer.get_monitor_socket()
    try:
        peer.connect(victim.info.tcp)
        bomb = pickle.dumps(Bomb(tmp_path / "exploded"))
        # As it is, and laid out as a process of the run would send it.
        whole = b"".join([friend._transport._greeting, *transport_module._pack([NOTICE + bomb])[0]])
        for message in (bomb, whole):
            peer.send(message, zmq.NOBLOCK)  # leaves as soon as the door opens
        assert not has_got_through(monitor)
    finally:
        peer.disable_monitor()
        monitor.close(0)
        context.destroy(0)
    assert friend.query(victim.info, "hello", timeout=20) == "heard", "who holds the key is still served"
    assert not (tmp_path / "exploded").exists()


def test_bytes_that_are_not_even_zeromq_are_dropped(victim: Endpoint, friend: Endpoint, tmp_path: Path) -> None:
    host, port = victim.info.tcp.removeprefix("tcp://").rsplit(":", 1)
    bomb = pickle.dumps(Bomb(tmp_path / "exploded"))
    # What a ZeroMQ 2 peer, which knows no security, would say: an empty identity, then one frame.
    old = b"\x01\x00" + bytes([len(bomb) + 1, 0]) + bomb
    for noise in (bomb, b"GET / HTTP/1.1\r\n\r\n", old, b"\xff" + bytes(8) + b"\x7f\x03" + bytes(53) + bomb):
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(noise)
    assert friend.query(victim.info, "hello", timeout=20) == "heard"
    assert not (tmp_path / "exploded").exists()


def test_whoever_holds_the_key_could_have_sent_it(victim: Endpoint, friend: Endpoint, tmp_path: Path) -> None:
    """The bomb of the tests above does work: it is the door that keeps it out."""
    friend._transport.send(victim.info, [NOTICE + pickle.dumps(Bomb(tmp_path / "exploded"))])
    deadline = time.monotonic() + 20
    while not (tmp_path / "exploded").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_run_on_one_node_does_not_listen_on_the_network(namespace: str) -> None:
    endpoint = Endpoint(namespace=namespace, node_id="n0", keys=KEYS, listen_ip=None)
    try:
        assert endpoint.info.tcp is None
    finally:
        endpoint.close()


def test_only_this_user_may_enter_the_folder_of_sockets(victim: Endpoint) -> None:
    folder = os.path.dirname(victim.info.ipc.removeprefix("ipc://"))
    status = os.stat(folder)
    assert status.st_mode & 0o777 == 0o700
    assert status.st_uid == os.getuid()


def foreign(folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make another user's folder")
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)


def open_to_all(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def a_link(folder: Path) -> None:
    target = folder.with_name(f"{folder.name}_target")
    target.mkdir(mode=0o700)
    folder.symlink_to(target)


@pytest.mark.parametrize("prepare", [foreign, open_to_all, a_link])
def test_a_folder_that_a_stranger_has_prepared_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prepare: Callable[..., Any]
) -> None:
    monkeypatch.setattr(folders.tempfile, "tempdir", str(tmp_path))
    folder = folders._folder(tmp_path, "prepared")
    prepare(folder)
    with pytest.raises(ClusterError, match="only this user may enter"):
        Endpoint(namespace="prepared", node_id="n0", keys=KEYS, listen_ip=None)
