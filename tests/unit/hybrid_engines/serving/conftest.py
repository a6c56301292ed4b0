"""Servers that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from served_engines import ServerThread, TokenEngine


@pytest.fixture
def serve() -> Iterator[Callable[..., ServerThread]]:
    """Return what serves an engine."""
    threads: list[ServerThread] = []

    def start(engine: TokenEngine | None = None, *, token: str = "", port: int = 0) -> ServerThread:
        threads.append(ServerThread(engine or TokenEngine(), token=token, port=port))
        return threads[-1]

    yield start
    for thread in threads:
        thread.close()
