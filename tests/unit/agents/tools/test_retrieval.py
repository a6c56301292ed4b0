"""Passages from a search service, and services that are not there."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rlinf.agents.tools.retrieval import RetrievalTool
from rlinf.config.schema.agent import RetrievalToolConfig
from rlinf.errors import AgentError


class Service(ThreadingHTTPServer):
    """Answers each request with what a test has set."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.reply: Any = None
        self.requests: list[Any] = []


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        self.server.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        body = json.dumps(self.server.reply).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        thread = threading.Thread(target=service.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield service
        service.shutdown()
        thread.join()


def search(port: int, **keys: Any) -> str:
    url = f"http://127.0.0.1:{port}/retrieve"
    cfg = RetrievalToolConfig(tool_type="retrieval", url=url, top_k=2, max_retries=0, **keys)
    return asyncio.run(RetrievalTool("search", cfg).call({"query": "capital"})).text


def test_documents_are_numbered_with_their_titles(service: Service) -> None:
    service.reply = {
        "result": [[{"document": {"contents": "France\nParis is it."}, "score": 2.0}, {"document": "Spain"}]]
    }
    assert search(service.server_port) == "Doc 1: (Title: France) Paris is it.\nDoc 2: Spain"
    assert service.requests == [{"queries": ["capital"], "topk": 2, "return_scores": True}]
    service.reply = {"result": [[]]}
    assert search(service.server_port) == "Nothing was found."


@pytest.mark.parametrize("reply", [{}, [], {"result": []}, {"result": ["x"]}, {"error": "busy"}])
def test_a_service_that_says_something_else_fails_the_episode(service: Service, reply: Any) -> None:
    service.reply = reply
    with pytest.raises(AgentError, match=r"agent\.tools\.search\.url: .* Correct the service"):
        search(service.server_port)


def test_a_service_that_is_not_there_fails_the_episode(service: Service) -> None:
    port = service.server_port
    service.server_close()
    with pytest.raises(AgentError, match=r"agent\.tools\.search \(tool_type=retrieval\): .*did not answer"):
        search(port, timeout_seconds=1)
