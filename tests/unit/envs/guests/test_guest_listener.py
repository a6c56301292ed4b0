"""The program that waits for hosts gives each that has the key a guest, and ends the guest with its host."""

import os
import signal
import socket
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from listening_guests import KEY, listening, write_key
from pool_processes import wait_until_gone

from rlinf.envs import guests
from rlinf.envs.guests.guest_tcp import ProofError, prove_as_host
from rlinf.envs.guests.guest_wire import PROTOCOL, decode, encode


def connect(address: tuple[str, int]) -> tuple[Connection, dict[str, Any]]:
    connection = socket.create_connection(address)
    prove_as_host(connection, KEY)
    wire = Connection(connection.detach())
    kind, hello = decode(wire.recv_bytes())
    assert kind == "hello"
    return wire, hello


def ask(wire: Connection, *request: Any) -> Any:
    wire.send_bytes(encode(list(request)))
    return decode(wire.recv_bytes())


def build(adapter: str = "guest_simulator", **init_params: Any) -> tuple[str, dict[str, Any]]:
    counts = {"num_envs": 1, "first_env": 0, "num_recorded": 0}
    return "build", {"adapter": adapter, "episode": {"group_size": 1}, "init_params": init_params, **counts}


def test_each_host_has_a_process_of_its_own(tmp_path: Path) -> None:
    with listening(tmp_path) as address:
        (first, one), (second, other) = connect(address), connect(address)
        assert one["protocol"] == other["protocol"] == PROTOCOL
        assert one["pid"] != other["pid"]
        assert one["versions"]["numpy"] == np.__version__
        assert ask(second, *build())[0] == ask(first, *build())[0] == "ok"
        first.close()
        wait_until_gone(one["pid"])
        rows = {"rows": np.arange(1), "seeds": np.array([7])}
        assert ask(second, "reset", rows)[1]["obs"]["states"].tolist() == [[7, 0]]
        second.close()


def test_one_that_has_another_key_gets_no_process_and_is_noted(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with listening(tmp_path, log=log) as address:
        with socket.create_connection(address) as connection, pytest.raises(ProofError):
            prove_as_host(connection, b"x" * 32)
        with socket.create_connection(address) as connection:
            connection.recv(36)
            connection.sendall(encode(["close", {}]).ljust(64, b"\0"))
            assert not connection.recv(100), "a message is not read before the proof"
        connect(address)[0].close()
    assert log.read_text().count("was refused: it has another key") == 2


def test_only_the_adapter_that_it_was_started_for_is_loaded(tmp_path: Path) -> None:
    with listening(tmp_path) as address:
        wire, _ = connect(address)
        kind, (_, told, _) = ask(wire, *build("os"))
        wire.close()
    assert (kind, told) == ("error", "adapter: received 'os'; this guest was started for guest_simulator")


def test_a_guest_ends_within_a_step_when_its_host_has_gone(tmp_path: Path) -> None:
    with listening(tmp_path) as address:
        wire, hello = connect(address)
        assert ask(wire, *build(step_seconds=60.0))[0] == "ok"
        request = {
            "actions": np.zeros((1, 1, 1), np.float32),
            "active": np.ones(1, np.bool_),
            "steps": np.zeros(1, np.int64),
            "next_seeds": None,
            "rule": [9, False],
            "observes": False,
        }
        wire.send_bytes(encode(["chunk", request]))
        time.sleep(0.2)
        wire.close()
        wait_until_gone(hello["pid"])


def test_a_host_hears_at_once_that_its_guest_was_killed(tmp_path: Path) -> None:
    with listening(tmp_path) as address:
        wire, hello = connect(address)
        os.kill(hello["pid"], signal.SIGKILL)
        began = time.monotonic()
        with pytest.raises((EOFError, ConnectionResetError)):
            wire.recv_bytes()
        assert time.monotonic() - began < 5
        wire.close()


def test_guests_end_with_the_program(tmp_path: Path) -> None:
    with listening(tmp_path) as address:
        wire, hello = connect(address)
    wait_until_gone(hello["pid"])
    wire.close()


@pytest.mark.parametrize(
    ("address", "key", "told"),
    [("nowhere", b"k" * 32, "give tcp://host:port"), ("127.0.0.1:0", b"short", "has a key of 5 bytes")],
)
def test_a_wrong_command_line_is_told(address: str, key: bytes, told: str, tmp_path: Path) -> None:
    command = [sys.executable, str(Path(guests.__file__).parent), "guest_simulator", "--listen", address]
    run = subprocess.run(
        [*command, "--key-file", write_key(tmp_path, key)], capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 2
    assert told in run.stderr
