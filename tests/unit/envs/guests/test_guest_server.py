"""A guest answers one request after the other, says that it is alive, and closes its simulator at the end."""

import threading
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlinf.envs.guests.guest_server import GuestServer, load_adapter
from rlinf.envs.guests.guest_wire import PROTOCOL, decode, encode
from rlinf.envs.guests.rows import Singles


class Host:
    """The other end of a server that runs in a thread."""

    def __init__(self, ours: Connection, thread: threading.Thread) -> None:
        self.connection, self.thread = ours, thread

    def hear(self) -> Any:
        assert self.connection.poll(10)
        return decode(self.connection.recv_bytes())

    def ask(self, *request: Any) -> Any:
        self.connection.send_bytes(encode(list(request)))
        return self.hear()

    def build(self, **init_params: Any) -> Any:
        counts = {"num_envs": 2, "first_env": 0, "num_recorded": 0}
        episode = {"group_size": 1, "max_episode_steps": 50}
        return self.ask(
            "build", {"adapter": "guest_simulator", "episode": episode, "init_params": init_params, **counts}
        )


@pytest.fixture
def host() -> Iterator[Host]:
    ours, theirs = Pipe()
    server = GuestServer(theirs, heartbeat_seconds=0.05)  # type: ignore[arg-type]
    thread = threading.Thread(target=server.serve, args=["guest_simulator"], daemon=True)
    thread.start()
    host = Host(ours, thread)  # type: ignore[arg-type]
    yield host
    ours.close()
    thread.join(10)


def test_a_greeting_has_protocol_and_versions(host: Host) -> None:
    kind, hello = host.hear()
    assert (kind, hello["protocol"]) == ("hello", PROTOCOL)
    assert hello["versions"]["numpy"] == np.__version__


def test_requests_that_cannot_be_answered_are_errors_and_the_next_one_is_answered(host: Host) -> None:
    host.hear()
    assert host.ask("reset", {"rows": np.arange(2), "seeds": np.arange(2)})[1][1].endswith(
        "build first, then reset, chunk, versions and close"
    )
    assert host.build()[0] == "ok"
    assert host.ask("dance", {})[0] == "error"
    host.connection.send_bytes(b"\x80pickled")
    assert host.hear()[1][0] == "WireError"
    assert host.ask("reset", {"rows": np.arange(2), "seeds": np.arange(2)})[1]["obs"]["states"].tolist() == [
        [0, 0],
        [1, 0],
    ]


def test_heartbeats_come_while_a_request_is_worked_on_and_only_then(host: Host) -> None:
    host.hear()
    counts = {"num_envs": 1, "first_env": 0, "num_recorded": 0}
    content = {"adapter": "guest_simulator", "episode": {"group_size": 1}, "init_params": {"build_seconds": 0.3}}
    host.connection.send_bytes(encode(["build", content | counts]))
    beats = []
    while (message := host.hear())[0] == "alive":
        beats.append(message[1])
    assert message[0] == "ok"
    assert len(beats) >= 2
    assert beats[-1]["doing"] == "build"
    assert beats[0]["seconds"] < beats[-1]["seconds"]
    assert not host.connection.poll(0.3)


@pytest.mark.parametrize("says_so", [True, False])
def test_the_simulator_is_closed_when_the_host_closes(host: Host, tmp_path: Path, says_so: bool) -> None:
    host.hear()
    closed = tmp_path / "closed"
    host.build(closed_file=str(closed))
    if says_so:
        assert host.ask("close", {})[0] == "bye"
    else:
        host.connection.close()
    host.thread.join(10)
    assert not host.thread.is_alive()
    assert closed.exists()


def test_adapters_of_this_folder_come_before_others() -> None:
    assert load_adapter("habitat").__name__ == "rlinf.envs.guests.habitat"


def test_versions_are_those_that_the_simulator_says(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.hear()
    assert host.build()[0] == "ok"
    assert host.ask("versions", {}) == ["ok", {}]
    monkeypatch.setattr(Singles, "versions", lambda batch: {"scene": "4"}, raising=False)
    assert host.ask("versions", {}) == ["ok", {"scene": "4"}]
