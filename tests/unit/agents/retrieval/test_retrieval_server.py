"""The protocol of the search service, with the tool that speaks it."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rlinf.agents.retrieval.document_index import DocumentIndex, Hit
from rlinf.agents.retrieval.retrieval_server import RetrievalServer
from rlinf.agents.tools.retrieval import RetrievalTool
from rlinf.config.schema.agent import RetrievalToolConfig
from rlinf.errors import RewardError
from rlinf.utils.json_service import post_json


class Echo(DocumentIndex):
    """Finds the query itself, as often as there may be documents."""

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        return [[({"contents": f"{query}\n{rank}"}, 9.0 - rank) for rank in range(top_k)] for query in queries]


def served(use: Callable[[str], Any]) -> Any:
    """Return what ``use`` makes of the address of a server."""

    async def run() -> Any:
        server = RetrievalServer(Echo(), top_k=2)
        await server.start()
        try:
            return await asyncio.to_thread(use, server.url)
        finally:
            await server.close()

    return asyncio.run(run())


def post(body: Any) -> Any:
    return served(lambda url: post_json(url, body, timeout_seconds=10, max_retries=0))


def test_documents_stand_with_their_scores_or_by_themselves() -> None:
    with_scores = post({"queries": ["a", "b"], "topk": 1, "return_scores": True})
    assert with_scores == {"result": [[{"document": {"contents": f"{each}\n0"}, "score": 9.0}] for each in "ab"]}
    assert post({"queries": ["a"]}) == {"result": [[{"contents": "a\n0"}, {"contents": "a\n1"}]]}
    assert post({"queries": []}) == {"result": []}


def test_the_tool_speaks_the_protocol() -> None:
    def use(url: str) -> str:
        cfg = RetrievalToolConfig(tool_type="retrieval", url=url, top_k=2, max_retries=0)
        return asyncio.run(RetrievalTool("search", cfg).call({"query": "France"})).text

    assert served(use) == "Doc 1: (Title: France) 0\nDoc 2: (Title: France) 1"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ([], "no JSON object"),
        ({}, "queries: expected a list of texts, received None"),
        ({"queries": "a"}, "queries: expected a list"),
        ({"queries": [1]}, "queries: expected a list"),
        ({"queries": ["a"] * 1025}, "queries: received 1025; 1024 are allowed"),
        ({"queries": ["a"], "topk": 0}, "topk: expected a number from 1 to 100, received 0"),
        ({"queries": ["a"], "topk": 101}, "topk: expected"),
        ({"queries": ["a"], "topk": "3"}, "topk: expected"),
        ({"queries": ["a"], "topk": True}, "topk: expected"),
    ],
)
def test_a_request_that_is_wrong_is_refused(body: Any, problem: str) -> None:
    texts: list[str] = []

    def use(url: str) -> None:

        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=10)
        texts.append(caught.value.read().decode())
        assert caught.value.code == 400

    served(use)
    assert problem in texts[0]


def test_a_server_that_was_closed_answers_no_more() -> None:
    url = served(lambda url: url)
    with pytest.raises(RewardError, match="did not answer"):
        post_json(url, {"queries": []}, timeout_seconds=2, max_retries=0)
