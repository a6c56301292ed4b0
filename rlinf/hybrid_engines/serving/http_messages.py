"""HTTP/1.1 over asyncio streams: as much of it as a server of an engine and its clients need.

Bodies have a ``Content-Length`` and connections are kept; there are no chunks, no encodings and no pipelining.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

import numpy as np
import torch

STREAM_LIMIT = 4 << 20
"""Bytes that a stream reads ahead."""
_MAX_HEADERS = 100
_BODY_CHUNK_BYTES = 4 << 20


class HTTPError(ValueError):
    """What came is no message that this module reads; the connection is of no further use."""


@dataclass(frozen=True, slots=True)
class HTTPHead:
    """What goes before a body.

    Attributes:
        start: The first line.
        headers: By name in lower case.
    """

    start: str
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content_bytes(self) -> int:
        """Bytes of the body.

        Raises:
            HTTPError: The headers say something else.
        """
        text = self.headers.get("content-length", "0")
        if not text.isascii() or not text.isdigit() or "transfer-encoding" in self.headers:
            raise HTTPError("A body needs a Content-Length, and no Transfer-Encoding.")
        return int(text)


async def read_head(reader: asyncio.StreamReader) -> HTTPHead | None:
    """Read a first line and headers; None if the connection ended before.

    Raises:
        HTTPError: They are malformed.
        ConnectionError: The connection ended in the middle of them.
    """
    start = await _read_line(reader)
    if start is None:
        return None
    headers: dict[str, str] = {}
    while line := await _read_line(reader):
        name, found, value = line.partition(":")
        if not found or len(headers) == _MAX_HEADERS:
            raise HTTPError(f"A header is malformed, or one of more than {_MAX_HEADERS}.")
        headers[name.strip().lower()] = value.strip()
    if line is None:
        raise ConnectionResetError("The connection ended within the headers.")
    return HTTPHead(start, headers)


async def _read_line(reader: asyncio.StreamReader) -> str | None:
    try:
        line = await reader.readline()
    except ValueError as error:
        raise HTTPError("A header is longer than this side reads.") from error
    if not line:
        return None
    if not line.endswith(b"\n"):
        raise ConnectionResetError("The connection ended within a line.")
    return line.decode("latin-1").rstrip("\r\n")


async def read_body(reader: asyncio.StreamReader, num_bytes: int, *, most_bytes: int) -> bytes:
    """Read a body.

    Args:
        reader: The stream, behind the headers.
        num_bytes: Size of the body.
        most_bytes: Largest size that is read.

    Raises:
        HTTPError: It is larger.
        ConnectionError: The connection ended before its end.
    """
    if num_bytes > most_bytes:
        raise HTTPError(f"The body has {num_bytes} bytes; at most {most_bytes} are read.")
    try:
        return await reader.readexactly(num_bytes)
    except asyncio.IncompleteReadError as error:
        raise ConnectionResetError("The connection ended within the body.") from error


async def read_tensor(reader: asyncio.StreamReader, num_bytes: int) -> torch.Tensor:
    """Read a body into memory of its own.

    Args:
        reader: The stream, behind the headers.
        num_bytes: Size of the body.

    Returns:
        uint8, [num_bytes].

    Raises:
        ConnectionError: The connection ended before its end.
    """
    memory = np.empty(num_bytes, np.uint8)
    view, position = memoryview(memory.data).cast("B"), 0
    while position < num_bytes:
        chunk = await reader.read(min(_BODY_CHUNK_BYTES, num_bytes - position))
        if not chunk:
            raise ConnectionResetError("The connection ended within the body.")
        view[position : position + len(chunk)] = chunk
        position += len(chunk)
    return torch.from_numpy(memory)


async def discard_body(reader: asyncio.StreamReader, num_bytes: int) -> None:
    """Read a body that is not wanted, so that its sender comes to read why."""
    while num_bytes > 0:
        chunk = await reader.read(min(_BODY_CHUNK_BYTES, num_bytes))
        if not chunk:
            return
        num_bytes -= len(chunk)


def request_head(method: str, path: str, *, host: str, num_bytes: int, headers: Mapping[str, str]) -> bytes:
    """Return the head of a request."""
    fields = {"Host": host, "Content-Length": str(num_bytes), **headers}
    return _head(f"{method} {path} HTTP/1.1", fields)


def response_head(status: int, *, num_bytes: int, is_json: bool = True) -> bytes:
    """Return the head of a response."""
    kind = "application/json" if is_json else "application/octet-stream"
    fields = {"Content-Type": kind, "Content-Length": str(num_bytes)}
    return _head(f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", fields)


def status_of(head: HTTPHead) -> int:
    """Return the status of a response.

    Raises:
        HTTPError: The first line is not one of a response.
    """
    version, _, rest = head.start.partition(" ")
    code = rest[:3]
    if not version.startswith("HTTP/1.") or not code.isdigit():
        raise HTTPError(f"This is no HTTP response: {head.start[:80]!r}.")
    return int(code)


def target_of(head: HTTPHead) -> tuple[str, str]:
    """Return method and path of a request.

    Raises:
        HTTPError: The first line is not one of a request.
    """
    parts = head.start.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        raise HTTPError(f"This is no HTTP request: {head.start[:80]!r}.")
    return parts[0], parts[1]


def _head(start: str, fields: Mapping[str, str]) -> bytes:
    lines = [start, *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")
