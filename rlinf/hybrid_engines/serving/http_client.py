"""Sends requests to one HTTP server, over connections that are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import aiohttp
import torch


class HTTPClient:
    """One server, reached from one event loop.

    Args:
        base_url: ``http://host:port``, or https.
        headers: Sent with each request.
    """

    def __init__(self, base_url: str, headers: Mapping[str, str]) -> None:
        self._base_url = base_url.rstrip("/")
        self._headers = dict(headers)
        self._session: aiohttp.ClientSession | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def send(self, method: str, path: str, body: bytes | torch.Tensor = b"") -> tuple[int, bytes]:
        """Send a request and return status and body of the response.

        Cancelling the call hangs up, by which the server knows that its work is not needed.

        Args:
            method: ``GET``, ``POST`` or ``PUT``.
            path: Below the base URL.
            body: Bytes, or a uint8 tensor on the host.

        Raises:
            OSError: The server cannot be reached, has hung up or does not speak HTTP.
        """
        if self._session is None:
            # How long to wait is the caller's to say; as many connections as there are requests.
            self._session = aiohttp.ClientSession(
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=None),
                connector=aiohttp.TCPConnector(limit=0),
            )
        data = memoryview(body.numpy().data).cast("B") if isinstance(body, torch.Tensor) else body
        try:
            async with self._session.request(method, f"{self._base_url}{path}", data=data) as response:
                return response.status, await response.read()
        except aiohttp.ClientError as error:
            raise ConnectionError(f"{type(error).__name__}: {error}") from error

    def hang_up(self) -> None:
        """Break all connections, also those in use; the next request opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            task = asyncio.ensure_future(session.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Hang up, and wait until the connections are gone."""
        self.hang_up()
        await asyncio.gather(*self._closing)
