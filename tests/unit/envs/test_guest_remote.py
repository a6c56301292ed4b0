"""A guest on another machine, here another port: it plays as one that is started here, and its end is told."""

import contextlib
import os
import socket
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from listening_guests import KEY, listening, write_key
from test_guest_process import play

from rlinf.config.schema.env import GuestConfig, GuestEnvConfig
from rlinf.envs import make_vector_env
from rlinf.envs.guest_process import GuestProcess, GuestSetup, made_by_guest
from rlinf.envs.guest_remote import RemoteGuest, installed_versions, start_guest
from rlinf.envs.guests.guest_tcp import prove_as_guest
from rlinf.envs.guests.guest_wire import PROTOCOL, encode
from rlinf.envs.process_pool import ProcessPool
from rlinf.envs.single_env import SingleEnvSpec
from rlinf.errors import EnvironmentFailure


def pool(address: tuple[str, int], num_processes: int = 1, *, key: bytes = KEY, **init_params: Any) -> ProcessPool:
    spec = SingleEnvSpec(
        env_type="guest",
        factory=made_by_guest,
        kwargs={"init_params": init_params, "episode": {"group_size": 1, "max_episode_steps": 9}},
        num_envs=3,
    )
    setup = GuestSetup(adapter="guest_simulator", address=address, key=key)
    return ProcessPool(spec, num_processes, process=partial(start_guest, setup=setup))


@pytest.mark.parametrize("num_processes", [1, 2])
def test_rows_of_all_guests_come_together(num_processes: int, tmp_path: Path) -> None:
    with listening(tmp_path) as address:
        guests = pool(address, num_processes)
        assert {type(process) for process in guests.processes} == {RemoteGuest}
        chunk = play(guests, 4)
        assert chunk.rewards.tolist() == [[1, 2, 3, 0], [1, 2, 3, 4], [1, 2, 3, 4]]
        assert chunk.obs["task_descriptions"] == ["count from 0", "count from 1", "count from 2"]
        guests.close()


def test_a_simulator_is_closed_with_its_pool(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    with listening(tmp_path) as address:
        pool(address, closed_file=str(closed)).close()
        for _ in range(100):
            if closed.exists():
                break
            threading.Event().wait(0.05)
    assert closed.exists()


def test_a_recipe_names_address_and_key(tmp_path: Path) -> None:
    with listening(tmp_path) as (host, port):
        cfg = GuestEnvConfig(
            env_type="guest",
            adapter="guest_simulator",
            guest=GuestConfig(address=f"tcp://{host}:{port}", key_file=write_key(tmp_path)),
            total_num_envs=2,
            max_episode_steps=6,
            max_steps_per_rollout_epoch=12,
        )
        with make_vector_env(cfg, num_envs=2) as env:
            assert env.reset(0)["states"].shape == (2, 2)
            assert env.versions()["numpy"] == np.__version__


def test_versions_are_those_of_the_other_machine(tmp_path: Path) -> None:
    with listening(tmp_path) as address:
        setup = GuestSetup(adapter="guest_simulator", address=address, key=KEY)
        assert installed_versions(setup, "guest")["no-such-simulator"] == ""


def test_another_key_is_named(tmp_path: Path) -> None:
    with listening(tmp_path) as address:
        with pytest.raises(EnvironmentFailure, match=r"env\.\*\.guest\.key_file: tcp://127.* closed the connection"):
            pool(address, key=b"x" * 32)
        pool(address).close()


def test_a_place_where_nothing_listens_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
    with pytest.raises(EnvironmentFailure, match=r"env\.\*\.guest\.address: no connection to tcp://.*--listen"):
        pool(address)


def test_a_guest_that_dies_fails_the_call_at_once(tmp_path: Path) -> None:
    told = r"connection to guest at tcp://127.*environments 0-2\).*has ended"
    with listening(tmp_path) as address, pytest.raises(EnvironmentFailure, match=told):
        play(pool(address, crash_at=2))


def impostor(said: bytes, *, key: bytes | None) -> tuple[str, int]:
    """Listen once, prove to have a key or not, and say something."""
    server = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        connection, _ = server.accept()
        with server, connection:
            if key is not None:
                prove_as_guest(connection, key)
            connection.sendall(said)
            with contextlib.suppress(OSError):
                connection.recv(1)

    threading.Thread(target=run, daemon=True).start()
    address: tuple[str, int] = server.getsockname()
    return address


def test_nothing_is_parsed_before_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GuestProcess, "_greet", lambda self: pytest.fail("a greeting is read"))
    hello = encode(["hello", {"protocol": PROTOCOL}])
    with pytest.raises(EnvironmentFailure, match="no guest that listens"):
        pool(impostor(len(hello).to_bytes(4, "big") + hello, key=None))


def test_another_protocol_is_refused_with_both_numbers() -> None:
    hello = encode(["hello", {"protocol": 7}])
    with pytest.raises(EnvironmentFailure, match=f"speaks protocol 7; this host speaks {PROTOCOL}"):
        pool(impostor(len(hello).to_bytes(4, "big") + hello, key=KEY))


def test_a_message_that_is_too_long_is_refused() -> None:
    with pytest.raises(EnvironmentFailure, match="more than 2147483647 bytes"):
        pool(impostor((-1).to_bytes(4, "big", signed=True) + (2**40).to_bytes(8, "big"), key=KEY))


def test_the_connection_notices_when_the_other_machine_is_gone(tmp_path: Path) -> None:
    with listening(tmp_path) as address:
        guests = pool(address)
        with socket.socket(fileno=os.dup(guests.processes[0].connection.fileno())) as connection:
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert 0 < connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 60_000
        guests.close()
