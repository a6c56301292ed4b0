"""Heads and bodies of HTTP as they are read, and what is refused."""

from __future__ import annotations

import asyncio

import pytest
import torch

from rlinf.hybrid_engines.serving import http_messages as http


def read(data: bytes, *, limit: int = 1 << 16) -> http.HTTPHead | None:
    async def run() -> http.HTTPHead | None:
        return await http.read_head(reader_of(data, limit))

    return asyncio.run(run())


def reader_of(data: bytes, limit: int = 1 << 16) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=limit)
    reader.feed_data(data)
    reader.feed_eof()
    return reader


def test_what_is_written_is_read() -> None:
    head = read(http.request_head("PUT", "/a/1", host="h:1", num_bytes=12, headers={"X-A": "b: c"}))
    assert head is not None
    assert http.target_of(head) == ("PUT", "/a/1")
    assert (head.content_bytes, head.headers["x-a"], head.headers["host"]) == (12, "b: c", "h:1")
    answer = read(http.response_head(503, num_bytes=3, is_json=False))
    assert answer is not None
    assert (http.status_of(answer), answer.content_bytes) == (503, 3)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert read(b"") is None


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1", b"GET / HTTP/1.1\r\nHost: a\r\n"])
def test_an_end_within_the_head_is_a_broken_connection(data: bytes) -> None:
    with pytest.raises(ConnectionResetError):
        read(data)


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\nHost\r\n\r\n", b"".join(b"a%d: b\r\n" % n for n in range(200)), b"x" * 400 + b"\r\n"]
)
def test_malformed_heads_are_refused(data: bytes) -> None:
    with pytest.raises(http.HTTPError):
        read(data, limit=256)


@pytest.mark.parametrize(
    "headers", [{"content-length": "-1"}, {"content-length": "\u0661"}, {"transfer-encoding": "x"}]
)
def test_sizes_that_are_none_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(http.HTTPError):
        _ = http.HTTPHead("GET / HTTP/1.1", headers).content_bytes


def test_first_lines_of_something_else_are_refused() -> None:
    for start in ("SSH-2.0", "HTTP/1.1 abc", "HTTP/2 200"):
        with pytest.raises(http.HTTPError):
            http.status_of(http.HTTPHead(start))
    for start in ("GET /", "GET / FTP/1.1"):
        with pytest.raises(http.HTTPError):
            http.target_of(http.HTTPHead(start))


def test_bodies_are_read_whole_or_not_at_all() -> None:
    async def run() -> None:
        assert await http.read_body(reader_of(b"abcd"), 3, most_bytes=3) == b"abc"
        with pytest.raises(http.HTTPError, match="at most 2"):
            await http.read_body(reader_of(b"abcd"), 3, most_bytes=2)
        with pytest.raises(ConnectionResetError):
            await http.read_body(reader_of(b"ab"), 3, most_bytes=9)
        tensor = await http.read_tensor(reader_of(bytes(range(250)) * 40), 9_999)
        assert torch.equal(tensor, torch.tensor(list(range(250)) * 40, dtype=torch.uint8)[:9_999])
        with pytest.raises(ConnectionResetError):
            await http.read_tensor(reader_of(b"ab"), 3)
        rest = reader_of(b"abcd")
        await http.discard_body(rest, 3)
        assert await rest.read() == b"d"

    asyncio.run(run())
