"""Sends requests to one HTTP server, over connections that are kept."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from urllib.parse import urlsplit

import torch

from rlinf.hybrid_engines.serving.http_messages import (
    STREAM_LIMIT,
    read_body,
    read_head,
    request_head,
    status_of,
)

_MOST_BYTES = 1 << 40
_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class HTTPClient:
    """One server, reached from one event loop.

    Args:
        base_url: ``http://host:port``, or https.
        headers: Sent with each request.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(base_url)
        self._is_secure = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._is_secure else 80)
        self._path = parts.path.rstrip("/")
        self._headers = dict(headers)
        self._idle: list[_Connection] = []

    async def send(self, method: str, path: str, body: bytes | torch.Tensor = b"") -> tuple[int, bytes]:
        """Send a request and return status and body of the response.

        Cancelling the call hangs up, by which the server knows that its work is not needed.

        Args:
            method: ``GET``, ``POST`` or ``PUT``.
            path: Below the base URL.
            body: Bytes, or a uint8 tensor on the host.

        Raises:
            OSError: The server cannot be reached, or has hung up.
            HTTPError: It answers with something that is not HTTP.
        """
        data = memoryview(body.numpy().data).cast("B") if isinstance(body, torch.Tensor) else body
        head = request_head(
            method, f"{self._path}{path}", host=f"{self._host}:{self._port}", num_bytes=len(data), headers=self._headers
        )
        reader, writer = self._idle.pop() if self._idle else await self._connect()
        is_kept = False
        try:
            writer.write(head)
            writer.write(data)
            await writer.drain()
            answer = await read_head(reader)
            if answer is None:
                raise ConnectionResetError("The server has hung up.")
            content = await read_body(reader, answer.content_bytes, most_bytes=_MOST_BYTES)
            is_kept = True
            return status_of(answer), content
        finally:
            if is_kept:
                self._idle.append((reader, writer))
            else:
                writer.transport.abort()

    async def _connect(self) -> _Connection:
        context = ssl.create_default_context() if self._is_secure else None
        return await asyncio.open_connection(self._host, self._port, limit=STREAM_LIMIT, ssl=context)

    def hang_up(self) -> None:
        """Close the connections that no request uses."""
        idle, self._idle = self._idle, []
        for _, writer in idle:
            with contextlib.suppress(RuntimeError):  # its event loop has been closed, and the socket with it
                writer.transport.abort()
