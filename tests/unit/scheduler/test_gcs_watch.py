"""The loss of a service is told once, and only if the service does not come back."""

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlinf.errors import ClusterError
from rlinf.scheduler.gcs_watch import GcsWatch


class Service:
    """Accepts connections, and ends them when it stops.

    Args:
        port: Where; 0 for any.
    """

    def __init__(self, port: int = 0) -> None:
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port = self.listener.getsockname()[1]
        self.connections, self.arrived = [], threading.Semaphore(0)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        try:
            while True:
                self.connections.append(self.listener.accept()[0])
                self.connections[-1].sendall(b"greeting")
                self.arrived.release()
        except OSError:
            return

    def stop(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for connection in self.connections:
            # At once, so that the port is free.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            connection.close()


@pytest.fixture
def watch() -> Iterator[Callable[..., tuple[Any, list[Any], threading.Event]]]:
    """Watch a service; what was lost is in ``errors``."""
    watches, errors, lost = [], [], threading.Event()

    def start(port: int, patience_seconds: float) -> tuple[Any, list[Any], threading.Event]:
        watches.append(
            GcsWatch(f"127.0.0.1:{port}", lambda error: (errors.append(error), lost.set()), patience_seconds)
        )
        return watches[-1], errors, lost

    yield start
    for made in watches:
        made.close()


def test_a_service_that_is_gone_is_told(watch: Callable[..., tuple[Any, list[Any], threading.Event]]) -> None:
    service = Service()
    _, errors, lost = watch(service.port, 0.5)
    assert service.arrived.acquire(timeout=20)
    assert not lost.wait(1.5)
    service.stop()
    assert lost.wait(30)
    (error,) = errors
    assert isinstance(error, ClusterError)
    assert f"127.0.0.1:{service.port}" in str(error)
    assert "runner.resume_dir=auto" in str(error)


def test_a_service_that_comes_back_is_not_lost(watch: Callable[..., tuple[Any, list[Any], threading.Event]]) -> None:
    service = Service()
    _, _, lost = watch(service.port, 60)
    assert service.arrived.acquire(timeout=20)
    service.stop()
    assert not lost.wait(2.5)  # some attempts have failed
    again = Service(service.port)
    assert again.arrived.acquire(timeout=20)
    assert not lost.is_set()
    again.stop()


def test_nothing_is_told_after_the_end(watch: Callable[..., tuple[Any, list[Any], threading.Event]]) -> None:
    service = Service()
    watching, _, lost = watch(service.port, 0.1)
    assert service.arrived.acquire(timeout=20)
    watching.close()
    service.stop()
    assert not lost.wait(3)
