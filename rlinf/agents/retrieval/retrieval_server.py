"""Serves an index over HTTP, by the protocol of Search-R1's retriever."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from rlinf.agents.retrieval.document_index import DocumentIndex, Hit

_MOST_BODY_BYTES = 16 << 20
_MOST_QUERIES, _MOST_DOCUMENTS = 1024, 100


class RetrievalServer:
    """Answers ``POST /retrieve`` with ``{"queries": [...], "topk": 3, "return_scores": true}``.

    The reply is ``{"result": [[{"document": {...}, "score": 1.5}, ...], ...]}``, a list for each query; without scores
    the documents stand by themselves. Searches run in a thread, one after the other.

    Args:
        index: What is searched.
        top_k: Documents of a query that asks for no number.

    Attributes:
        url: Where it listens, once it does.
    """

    def __init__(self, index: DocumentIndex, top_k: int = 3) -> None:
        self.url = ""
        self._index, self._top_k = index, top_k
        self._searching = asyncio.Lock()
        self._runner: web.AppRunner | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen.

        Args:
            host: Address to listen on.
            port: Port; 0 chooses a free one.

        Raises:
            OSError: The port is taken.
        """
        application = web.Application(client_max_size=_MOST_BODY_BYTES)
        application.router.add_post("/retrieve", self._retrieve)
        application.router.add_get("/health", _health)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        self.url = f"http://{host}:{self._runner.addresses[0][1]}/retrieve"

    async def close(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _retrieve(self, request: web.Request) -> web.Response:
        try:
            message = json.loads(await request.read())
        except (ValueError, RecursionError):
            message = None
        problem = _problem(message)
        if problem is not None:
            return web.json_response({"error": problem}, status=400)
        queries, top_k = message["queries"], message.get("topk") or self._top_k
        async with self._searching:
            found = await asyncio.to_thread(self._index.search, queries, top_k)
        with_scores = message.get("return_scores", False)
        return web.json_response({"result": [[_entry(hit, with_scores) for hit in hits] for hits in found]})


def _entry(hit: Hit, with_score: bool) -> Mapping[str, Any]:
    document, score = hit
    return {"document": document, "score": score} if with_score else document


def _problem(message: Any) -> str | None:
    """Return what is wrong with a request."""
    if not isinstance(message, dict):
        return "The body is no JSON object."
    queries, top_k = message.get("queries"), message.get("topk")
    if not isinstance(queries, list) or not all(isinstance(query, str) for query in queries):
        return f"queries: expected a list of texts, received {str(queries)[:80]}."
    if len(queries) > _MOST_QUERIES:
        return f"queries: received {len(queries)}; {_MOST_QUERIES} are allowed."
    if top_k is not None and (type(top_k) is not int or not 1 <= top_k <= _MOST_DOCUMENTS):
        return f"topk: expected a number from 1 to {_MOST_DOCUMENTS}, received {str(top_k)[:80]}."
    return None


async def _health(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})
