"""A client's requests, and what it raises of a server that is none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import torch

from rlinf.hybrid_engines.serving.http_client import HTTPClient

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
Scene = Callable[[HTTPClient, list[bytes], list[asyncio.StreamWriter]], Awaitable[None]]


def play(answer: bytes, scene: Scene) -> None:
    """Run a scene with a server that reads a request of at most 64 KiB and says ``answer``."""

    async def run() -> None:
        received: list[bytes] = []
        open_writers: list[asyncio.StreamWriter] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            open_writers.append(writer)
            while data := await reader.read(1 << 16):
                received.append(data)
                writer.write(answer)
                if answer != ANSWER:
                    break
            open_writers.remove(writer)
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        client = HTTPClient(f"http://127.0.0.1:{port}/base/", {"X-Name": "me"})
        try:
            await scene(client, received, open_writers)
        finally:
            await client.close()
            server.close()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_requests_go_below_the_base_with_the_headers_on_a_kept_connection() -> None:
    async def scene(client: HTTPClient, received: list[bytes], open_writers: list[asyncio.StreamWriter]) -> None:
        assert await client.send("GET", "/health") == (200, b"{}")
        assert await client.send("GET", "/stats") == (200, b"{}")
        assert received[0].startswith(b"GET /base/health HTTP/1.1")
        assert b"X-Name: me" in received[0]
        assert len(open_writers) == 1
        await client.close()
        # Left alone, a connection that is kept ends by itself after 15 s.
        for _ in range(500):
            if not open_writers:
                break
            await asyncio.sleep(0.01)
        assert not open_writers
        assert await client.send("GET", "/stats") == (200, b"{}")

    play(ANSWER, scene)


def test_a_tensor_travels_as_its_bytes() -> None:
    async def scene(client: HTTPClient, received: list[bytes], open_writers: list[asyncio.StreamWriter]) -> None:
        await client.send("PUT", "/bucket", torch.arange(5, dtype=torch.uint8))
        assert b"Content-Length: 5\r\n" in received[0]
        assert b"".join(received).endswith(bytes(range(5)))

    play(ANSWER, scene)


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0 hello\r\n\r\n", ANSWER[:-1]], ids=["none", "other", "short"])
def test_what_is_no_answer_is_a_broken_connection(answer: bytes) -> None:
    async def scene(client: HTTPClient, received: list[bytes], open_writers: list[asyncio.StreamWriter]) -> None:
        with pytest.raises(ConnectionError):
            await client.send("GET", "/health")

    play(answer, scene)


def test_a_server_that_is_not_there_is_a_broken_connection() -> None:
    async def run() -> None:
        client = HTTPClient("http://127.0.0.1:9", {})
        with pytest.raises(ConnectionError):
            await client.send("GET", "/health")
        await client.close()

    asyncio.run(run())
