"""Where a run keeps its sockets when the user's temporary folder has a long path."""

import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlinf.scheduler.comm import folders
from rlinf.scheduler.comm.endpoint import Endpoint
from rlinf.scheduler.comm.transport import new_keys, remove_socket_folder


def test_sockets_lie_in_the_temporary_folder_while_its_path_is_short(temporary: Callable[..., Any]) -> None:
    # What remains of 107 bytes for "/rlinf_<user>_<8 characters>/<16 characters>".
    longest = 107 - len(f"/rlinf_{os.getuid()}_") - 8 - 17
    folder = temporary(longest)
    assert folders.socket_base() == folder
    temporary(longest + 1)
    assert folders.socket_base() == Path("/tmp")


def test_a_long_temporary_folder_is_no_error_and_nothing_is_left(temporary: Callable[..., Any]) -> None:
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
