"""Where a run keeps its sockets when the user's temporary folder has a long path."""

import os
import tempfile
import uuid
from pathlib import Path

import pytest

from rlinf.errors import ClusterError
from rlinf.scheduler import attach
from rlinf.scheduler.attach import attach_ray
from rlinf.scheduler.comm import folders
from rlinf.scheduler.comm.endpoint import Endpoint
from rlinf.scheduler.comm.transport import new_keys, remove_socket_folder


@pytest.fixture
def temporary(monkeypatch):
    """Make the temporary folder's path have so many characters."""
    with tempfile.TemporaryDirectory(dir="/tmp") as base:

        def choose(length):
            folder = Path(base) / ("x" * (length - len(base) - 1))
            folder.mkdir()
            monkeypatch.setattr(tempfile, "tempdir", str(folder))
            return folder

        yield choose


def test_sockets_lie_in_the_temporary_folder_while_its_path_is_short(temporary):
    # What remains of 107 bytes for "/rlinf_<user>_<8 characters>/<16 characters>".
    longest = 107 - len(f"/rlinf_{os.getuid()}_") - 8 - 17
    folder = temporary(longest)
    assert folders.socket_base() == folder
    temporary(longest + 1)
    assert folders.socket_base() == Path("/tmp")


def test_a_long_temporary_folder_is_no_error_and_nothing_is_left(temporary):
    folder, namespace, keys = temporary(150), uuid.uuid4().hex[:8], new_keys()
    client, server = (Endpoint(namespace=namespace, node_id="n0", keys=keys, listen_ip=None) for _ in range(2))
    try:
        server.serve("echo", lambda call: call.reply(call.args[0]))
        assert client.query(server.info, "echo", 1, timeout=20) == 1
        socket = Path(server.info.ipc)
        assert socket.is_relative_to("/tmp")
        folders.remove_process(namespace, server.info.uid)
        assert not socket.exists()
    finally:
        client.close()
        server.close()
        remove_socket_folder(namespace)
    assert not socket.parent.exists()
    assert list(folder.iterdir()) == []


@pytest.fixture
def start_of_ray(monkeypatch):
    """Note with which folder Ray would be started; it refuses one that is too long, as Ray does."""
    folders = []

    def init(*, _temp_dir, **_):
        folders.append(_temp_dir)
        if len(_temp_dir) > 50:
            raise OSError("AF_UNIX path length cannot exceed 107 bytes")

    for name in ("RAY_ADDRESS", "RAY_TMPDIR", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr(attach, "find_own_ray", lambda: None)
    monkeypatch.setattr("ray.init", init)
    return folders


@pytest.mark.parametrize(
    ("temporary", "folder"), [("", "/tmp/ray"), ("/var/tmp", "/var/tmp/ray"), (f"/var/{'x' * 34}", "/tmp/ray")]
)
def test_ray_starts_in_the_temporary_folder_or_a_shorter_one(start_of_ray, monkeypatch, temporary, folder):
    monkeypatch.setenv("TMPDIR", temporary)
    assert attach_ray("test").owned
    assert start_of_ray == [folder]


def test_a_folder_for_ray_that_is_too_long_is_a_typed_error(start_of_ray, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", f"/var/{'x' * 60}")
    with pytest.raises(ClusterError, match="Cannot start Ray: AF_UNIX path length"):
        attach_ray("test")
