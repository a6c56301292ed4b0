"""Answers the host's requests on a connection, one after the other, until it closes."""

from __future__ import annotations

import fcntl
import importlib
import importlib.util
import mmap
import os
import platform
import signal
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from .guest_versions import installed_versions
from .guest_wire import HEARTBEAT_SECONDS, MAX_BYTES, PROTOCOL, decode, encode
from .rows import GuestRows, Singles

_LONGEST_TEXT = 2**16
"""Characters of an error's text and traceback that are sent, the last ones."""


def main(adapter: str, connection_fd: int, lifeline_fd: int, shared_fd: int | None = None) -> None:
    """Serve an adapter on a connection.

    Args:
        adapter: The adapter's name.
        connection_fd: The descriptor to receive requests from, and to answer on.
        lifeline_fd: The process ends when the other end of this one closes.
        shared_fd: A file that the host sees as well, for arrays that are large; None where there is none.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the host's to handle
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(lifeline_fd, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline_fd, fcntl.F_SETFL, fcntl.fcntl(lifeline_fd, fcntl.F_GETFL) | os.O_ASYNC)
    shared = None if shared_fd is None else memoryview(mmap.mmap(shared_fd, 0))
    GuestServer(Connection(connection_fd), shared=shared).serve(adapter)


class GuestServer:
    """Says hello, then answers ``build``, ``reset``, ``chunk`` and ``versions``; ``close`` is answered with ``bye``.

    While it works on a request, a thread says ``alive`` with what it does, for how long, and how far it has come.

    Args:
        connection: To the host.
        heartbeat_seconds: How often ``alive`` is said.
        shared: Memory that the host sees as well.
    """

    def __init__(
        self,
        connection: Connection,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        shared: memoryview | None = None,
    ) -> None:
        self._connection = connection
        self._shared = shared
        self._adapter = ""
        self._heartbeat_seconds = heartbeat_seconds
        self._rows: GuestRows | None = None
        self._lock = threading.Lock()
        self._work: tuple[str, float] | None = None

    def serve(self, adapter: str) -> None:
        """Answer until the host closes the connection, or says ``close``; then close the simulator."""
        self._adapter = adapter
        versions = {"python": platform.python_version(), "numpy": np.__version__, **installed_versions(adapter)}
        self._send(["hello", {"protocol": PROTOCOL, "pid": os.getpid(), "versions": versions}])
        threading.Thread(target=self._beat, daemon=True).start()
        while self._serve_one():
            pass
        if self._rows is not None:
            self._rows.close()

    def _serve_one(self) -> bool:
        """Answer a request; return whether another one may come."""
        try:
            message = self._connection.recv_bytes(MAX_BYTES)
        except (EOFError, OSError):
            return False
        try:
            kind, content = decode(message)
            if kind == "close":
                return self._send(["bye", {}]) and False
            self._work = (str(kind), time.monotonic())
            reply = encode(["ok", self._answer(kind, content)], self._shared)
        except Exception as error:  # noqa: BLE001 - the boundary: the host raises it
            texts = [type(error).__name__, str(error), traceback.format_exc()]
            reply = encode(["error", [text[-_LONGEST_TEXT:] for text in texts]])
        return self._send_bytes(reply)

    def _answer(self, kind: Any, content: Any) -> Any:
        if kind == "build":
            if content["adapter"] != self._adapter:
                raise ValueError(
                    f"adapter: received {content['adapter']!r}; this guest was started for {self._adapter}"
                )
            self._rows = build_rows(content)
            return self._rows.spaces()
        if self._rows is None or kind not in {"reset", "chunk", "versions"}:
            raise ValueError(f"received request {kind!r}; allowed: build first, then reset, chunk, versions and close")
        if kind == "versions":
            return self._rows.versions()
        if kind == "reset":
            return self._rows.reset(content["rows"], content["seeds"])
        return self._rows.run_chunk(content)

    def _beat(self) -> None:
        while True:
            time.sleep(self._heartbeat_seconds)
            with self._lock:
                # Under the lock, so that no heartbeat comes behind the answer.
                if self._work is None:
                    continue
                kind, began = self._work
                progress = 0 if self._rows is None else self._rows.progress
                report = {"doing": kind, "seconds": time.monotonic() - began, "progress": progress}
                try:
                    self._connection.send_bytes(encode(["alive", report]))
                except OSError:
                    return

    def _send(self, value: Any) -> bool:
        return self._send_bytes(encode(value))

    def _send_bytes(self, message: bytes) -> bool:
        with self._lock:
            self._work = None
            try:
                self._connection.send_bytes(message)
            except OSError:
                return False
            return True


def build_rows(content: dict[str, Any]) -> GuestRows:
    """Build the environments that a request describes."""
    module = load_adapter(content["adapter"])
    num_envs, num_recorded = content["num_envs"], content["num_recorded"]
    common = {"num_envs": num_envs, "first_env": content["first_env"]}
    if hasattr(module, "make_batch"):
        batch = module.make_batch(render=num_recorded > 0, **common, **content["episode"], **content["init_params"])
    else:
        batch = Singles(
            module.make,
            num_recorded=num_recorded,
            init_params=content["init_params"],
            group_size=content["episode"]["group_size"],
            **common,
        )
    return GuestRows(batch, num_envs=num_envs, num_recorded=num_recorded)


def load_adapter(name: str) -> Any:
    """Return an adapter: a module of this folder, or else any that can be imported."""
    own = f"{__package__}.{name}"
    return importlib.import_module(own if importlib.util.find_spec(own) is not None else name)
