"""Notices that Ray's head service (GCS) is gone; Ray ends the driver a minute later, in any case."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

from rlinf.errors import ClusterError

# Ray's processes give up after 60 s; until then the run must have ended, which takes some 10 s.
PATIENCE_SECONDS = 20.0
_RETRY_SECONDS = 1.0
_ANSWER_SECONDS = 5.0
# A machine that has vanished closes no connection: the kernel probes after this many idle seconds, this often.
_KEEPALIVE = {socket.TCP_KEEPIDLE: 5, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}


class GcsWatch:
    """Holds a connection to the service that carries nothing, and reports when it ends and cannot be made again.

    Args:
        address: ``HOST:PORT`` of the service.
        on_loss: Called once, on a thread of its own, with the error that the run ends with.
        patience_seconds: How long the service may be away: one with a database behind it can be started again.
    """

    def __init__(
        self, address: str, on_loss: Callable[[ClusterError], None], patience_seconds: float = PATIENCE_SECONDS
    ) -> None:
        self._address = address
        self._on_loss = on_loss
        self._patience_seconds = patience_seconds
        self._closed = threading.Event()
        self._connection: socket.socket | None = None
        threading.Thread(target=self._run, name="rlinf-gcs", daemon=True).start()

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()
        if self._connection is not None:
            with contextlib.suppress(OSError):  # it has ended just now
                self._connection.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        seen = time.monotonic()
        while not self._closed.is_set():
            if self._follow():
                seen = time.monotonic()
            elif time.monotonic() - seen > self._patience_seconds:
                self._on_loss(self._error())
                return
            self._closed.wait(_RETRY_SECONDS)

    def _follow(self) -> bool:
        """Hold a connection until it ends; False if there was none."""
        host, _, port = self._address.rpartition(":")
        try:
            self._connection = socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWER_SECONDS)
        except OSError:
            return False
        with self._connection as connection, contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEPALIVE.items():
                connection.setsockopt(socket.IPPROTO_TCP, option, value)
            connection.settimeout(None)
            while not self._closed.is_set() and connection.recv(4096):
                pass  # a greeting
        return True

    def _error(self) -> ClusterError:
        return ClusterError(
            f"Ray's head service (GCS) at {self._address} is gone and has not come back for {self._patience_seconds:g} "
            "s: deaths are not noticed and no process can be started any more. Its log is gcs_server.out in Ray's "
            "logs; a cause that is missing there is often a lack of memory. Start the run again with "
            "runner.resume_dir=auto."
        )
