"""Answers the host's requests on a connection, one after the other, until it closes."""

from __future__ import annotations

import fcntl
import importlib
import importlib.util
import os
import platform
import signal
import traceback
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from .guest_wire import MAX_BYTES, PROTOCOL, decode, encode
from .rows import GuestRows, Singles


def main(connection_fd: int, lifeline_fd: int) -> None:
    """Serve on two descriptors; the process ends when the other end of the second one closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the host's to handle
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline_fd, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline_fd, fcntl.F_SETFL, fcntl.fcntl(lifeline_fd, fcntl.F_GETFL) | os.O_ASYNC)
    serve(Connection(connection_fd))


def serve(connection: Connection) -> None:
    """Say hello, then answer ``build``, ``reset`` and ``chunk``."""
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    connection.send_bytes(encode(["hello", {"protocol": PROTOCOL, "pid": os.getpid(), **versions}]))
    rows: GuestRows | None = None
    while True:
        try:
            message = connection.recv_bytes(MAX_BYTES)
        except (EOFError, OSError):
            return
        try:
            kind, content = decode(message)
            if kind == "build":
                rows = build_rows(content)
                answer: Any = rows.spaces()
            elif rows is None or kind not in {"reset", "chunk"}:
                raise ValueError(f"received request {kind!r}; allowed: build first, then reset and chunk")
            elif kind == "reset":
                answer = rows.reset(content["rows"], content["seeds"])
            else:
                answer = rows.run_chunk(content)
            reply = encode(["ok", answer])
        except Exception as error:  # noqa: BLE001 - the boundary: the host raises it
            reply = encode(["error", [type(error).__name__, str(error), traceback.format_exc()]])
        try:
            connection.send_bytes(reply)
        except BrokenPipeError:
            return


def build_rows(content: dict[str, Any]) -> GuestRows:
    """Build the environments that a request describes."""
    module = load_adapter(content["adapter"])
    num_envs, num_recorded = content["num_envs"], content["num_recorded"]
    common = {"num_envs": num_envs, "first_env": content["first_env"]}
    if hasattr(module, "make_batch"):
        batch = module.make_batch(render=num_recorded > 0, **common, **content["episode"], **content["init_params"])
    else:
        batch = Singles(module.make, num_recorded=num_recorded, init_params=content["init_params"], **common)
    return GuestRows(batch, num_envs=num_envs, num_recorded=num_recorded)


def load_adapter(name: str) -> Any:
    """Return an adapter: a module of this folder, or else any that can be imported."""
    own = f"{__package__}.{name}"
    return importlib.import_module(own if importlib.util.find_spec(own) is not None else name)
