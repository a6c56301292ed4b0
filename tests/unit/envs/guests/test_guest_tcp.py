"""Both ends prove that they have the key, before anything else is read, and a proof is worth nothing a second time."""

import contextlib
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from rlinf.envs.guests import guest_tcp
from rlinf.envs.guests.guest_tcp import (
    ProofError,
    notice_silence,
    parse_address,
    prove_as_guest,
    prove_as_host,
    read_key,
)

KEY, OTHER = b"k" * 32, b"o" * 32


def ends() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair()


def in_thread(call: Any, *arguments: Any) -> tuple[threading.Thread, list[Exception]]:
    raised = list[Exception]()

    def run() -> None:
        try:
            call(*arguments)
        except (ProofError, OSError) as error:
            raised.append(error)
            arguments[0].close()

    thread = threading.Thread(target=run)
    thread.start()
    return thread, raised


def test_ends_with_one_key_find_each_other_and_may_wait_then() -> None:
    host, guest = ends()
    with host, guest:
        thread, raised = in_thread(prove_as_guest, guest, KEY)
        prove_as_host(host, KEY)
        thread.join(10)
        assert not raised
        assert host.gettimeout() is guest.gettimeout() is None


def test_a_host_with_another_key_is_refused_by_the_guest() -> None:
    host, guest = ends()
    with host, guest:
        thread, raised = in_thread(prove_as_guest, guest, KEY)
        with pytest.raises(ProofError, match="closed the connection"):
            prove_as_host(host, OTHER)
        thread.join(10)
        assert str(raised[0]) == "it has another key"


def test_a_guest_with_another_key_is_refused_by_the_host() -> None:
    host, guest = ends()
    with host, guest:
        thread, raised = in_thread(prove_as_host, host, KEY)
        guest.sendall(b"RLK1" + bytes(32))
        guest.recv(64)
        guest.sendall(bytes(32))
        thread.join(10)
        assert str(raised[0]) == "it has another key"


class Eavesdropper:
    """Hands all on between two ends, and notes what each said."""

    def __init__(self) -> None:
        self.host, one = ends()
        other, self.guest = ends()
        self.said: dict[str, bytes] = {"guest": b"", "host": b""}
        for name, source, target in (("guest", other, one), ("host", one, other)):
            threading.Thread(target=self._hand_on, args=(name, source, target), daemon=True).start()

    def _hand_on(self, name: str, source: socket.socket, target: socket.socket) -> None:
        while part := source.recv(4096):
            self.said[name] += part
            target.sendall(part)


def test_a_proof_that_was_overheard_is_refused_the_next_time() -> None:
    heard = Eavesdropper()
    thread, raised = in_thread(prove_as_guest, heard.guest, KEY)
    prove_as_host(heard.host, KEY)
    thread.join(10)
    assert not raised

    host, guest = ends()
    with host, guest:
        thread, raised = in_thread(prove_as_guest, guest, KEY)
        host.recv(36)
        host.sendall(heard.said["host"])
        thread.join(10)
        assert str(raised[0]) == "it has another key"
    host, guest = ends()
    with host, guest:
        thread, raised = in_thread(prove_as_host, host, KEY)
        guest.sendall(heard.said["guest"])
        thread.join(10)
        assert str(raised[0]) == "it has another key"


def test_a_guests_own_proof_is_none_of_a_host() -> None:
    assert guest_tcp._proof(KEY, b"host", bytes(32), bytes(32)) != guest_tcp._proof(KEY, b"guest", bytes(32), bytes(32))


def test_what_is_no_guest_is_told_so() -> None:
    host, guest = ends()
    with host, guest:
        guest.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(20))
        with pytest.raises(ProofError, match="no guest that listens"):
            prove_as_host(host, KEY)


def test_no_more_is_read_than_a_proof_has_and_none_of_it_is_parsed() -> None:
    host, guest = ends()
    with host, guest:
        host.sendall(bytes(10_000))
        with pytest.raises(ProofError, match="another key"):
            prove_as_guest(guest, KEY)
        assert len(guest.recv(20_000)) == 10_000 - 64


@pytest.mark.parametrize("said", [b"", b"RLK1"])
def test_one_that_does_not_go_on_is_left_after_a_while(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_tcp, "PROOF_SECONDS", 0.2)
    host, guest = ends()
    with host, guest:
        guest.sendall(said)
        with pytest.raises(ProofError, match="proved nothing within 0 s"):
            prove_as_host(host, KEY)


def test_bytes_that_trickle_do_not_prolong_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guest_tcp, "PROOF_SECONDS", 0.5)
    host, guest = ends()
    with host, guest:
        thread, raised = in_thread(prove_as_guest, guest, KEY)
        trickle = threading.Event()
        for _ in range(40):
            if raised:
                break
            with contextlib.suppress(OSError):
                host.sendall(b"x")
            trickle.wait(0.1)
        assert raised, "it goes on as long as bytes come"
        thread.join(10)
        assert "proved nothing" in str(raised[0])


def test_a_key_is_that_of_a_file_else_of_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_bytes(b"\n" + KEY + b"\n")
    file.chmod(0o600)
    monkeypatch.setenv("RLINF_GUEST_KEY", OTHER.decode())
    assert read_key(str(file)) == KEY
    assert read_key(None) == OTHER
    file.chmod(0o640)
    with pytest.raises(ValueError, match="others can read .*chmod 600"):
        read_key(str(file))
    with pytest.raises(ValueError, match="cannot be read"):
        read_key(str(tmp_path / "none"))
    monkeypatch.setenv("RLINF_GUEST_KEY", "short")
    with pytest.raises(ValueError, match=r"RLINF_GUEST_KEY has a key of 5 bytes; at least 16 .*openssl rand"):
        read_key(None)


def test_addresses_are_host_and_port() -> None:
    assert parse_address("tcp://sim.lab:5555") == ("sim.lab", 5555)
    assert parse_address("0.0.0.0:0") == ("0.0.0.0", 0)
    assert parse_address("tcp://[::1]:7") == ("::1", 7)


@pytest.mark.parametrize("text", ["sim.lab", "tcp://:5", "udp://a:5", "tcp://a:99999", "a:5/b", "u@a:5", ""])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"give tcp://host:port"):
        parse_address(text)


def test_the_kernel_looks_whether_the_other_machine_is_there() -> None:
    with socket.socket() as connection:
        notice_silence(connection)
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        probing = [
            connection.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        ]
    assert probing[0] + probing[1] * probing[2] <= 30
