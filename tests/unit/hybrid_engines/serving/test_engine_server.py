"""What an engine server answers to requests that are none."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable

import pytest
from served_engines import ServerThread

from rlinf.hybrid_engines.serving.http_client import HTTPClient

Serve = Callable[..., ServerThread]


def ask(url: str, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, str]:
    """Send one request; return status and message of the answer."""

    async def run() -> tuple[int, bytes]:
        client = HTTPClient(url, headers)
        try:
            return await client.send(method, path, body)
        finally:
            await client.close()

    status, content = asyncio.run(run())
    return status, str(json.loads(content).get("message", ""))


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "says"),
    [
        ("GET", "/nothing", b"", 404, "GET /nothing: Not Found"),
        ("PUT", "/stats", b"", 405, "PUT /stats: Method Not Allowed"),
        ("POST", "/abort", b"{", 400, "the request is malformed: JSONDecodeError"),
        ("POST", "/abort", b"{}", 400, "the request is malformed: KeyError('request_ids')"),
        ("POST", "/generate", b'{"prompt_ids": []}', 422, "no request of this version"),
        ("PUT", "/update/bucket/0", b"abc", 409, "does not have the lease"),
    ],
)
def test_what_is_no_request_is_answered_with_what_is_wrong(
    serve: Serve, method: str, path: str, body: bytes, status: int, says: str
) -> None:
    thread = serve()
    found, message = ask(thread.url, method, path, body)
    assert (found, says in message) == (status, True), message
    assert ask(thread.url, "GET", "/stats")[0] == 200


def test_who_has_no_token_learns_nothing(serve: Serve) -> None:
    thread = serve(token="secret")
    for path in ("/health", "/nothing"):
        status, message = ask(thread.url, "GET", path)
        assert (status, "RLINF_SERVER_TOKEN" in message) == (401, True)
    assert ask(thread.url, "GET", "/nothing", Authorization="Bearer secret")[0] == 404


@pytest.mark.timeout(60)
def test_a_client_that_has_sent_half_a_request_does_not_keep_the_server(serve: Serve) -> None:
    thread = serve()
    with socket.create_connection(("127.0.0.1", int(thread.url.rpartition(":")[2]))) as client:
        client.sendall(b"POST /abort HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n{")
        assert ask(thread.url, "GET", "/stats")[0] == 200, "the server has met the connection meanwhile"
        thread.close()
        assert client.recv(1) == b""
