"""Time bounds of requests to a service."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
import time
from typing import cast

import pytest

from rlinf.errors import RewardError
from rlinf.utils import json_service


class DrippingServer(socketserver.ThreadingTCPServer):
    text, drip = b"", b""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Dripping)
        self.was_left = threading.Event()


class Dripping(socketserver.BaseRequestHandler):
    """Sends one byte after another, each in good time, and never ends."""

    def handle(self) -> None:
        server = cast("DrippingServer", self.server)
        self.request.recv(1 << 16)
        try:
            self.request.sendall(server.text)
            while True:
                self.request.sendall(server.drip)
                time.sleep(0.02)
        except OSError:
            server.was_left.set()


@pytest.mark.parametrize(
    ("text", "drip"),
    [(b"", b"H"), (b"HTTP/1.1 200 OK\r\nX: ", b"a"), (b"HTTP/1.1 200 OK\r\n\r\n", b" ")],
    ids=["status", "headers", "body"],
)
def test_the_time_of_a_request_is_that_of_the_whole_response(text: bytes, drip: bytes) -> None:
    """Each byte comes in good time; only the client's leaving ends the service."""
    with DrippingServer() as server:
        server.text, server.drip = text, drip
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        with pytest.raises(RewardError, match=r"attempt 1 of 1, within 0\.3 s: \w*: ?.*timed out"):
            json_service.post_json(url, {}, timeout_seconds=0.3, max_retries=0)
        assert server.was_left.wait(60)
        server.shutdown()
        thread.join()


def test_a_silent_service_is_left() -> None:
    """It takes the request, begins a response and says nothing more."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def begin() -> None:
            with server.accept()[0] as connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n{")
                connection.settimeout(30)  # a client that waits for more reads the end of half a response
                with contextlib.suppress(TimeoutError):
                    while connection.recv(1 << 16):  # the rest of the request, until the client leaves
                        pass

        thread = threading.Thread(target=begin, daemon=True)
        thread.start()
        with pytest.raises(RewardError, match="timed out"):
            json_service.post_json(
                f"http://127.0.0.1:{server.getsockname()[1]}/", {}, timeout_seconds=0.3, max_retries=0
            )
        thread.join()
