"""Passages from a search service, and services that are not there."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rlinf.agents.chat import ToolCall
from rlinf.agents.tools.retrieval import RetrievalTool
from rlinf.agents.tools.toolbox import ToolBox
from rlinf.config.schema.agent import RetrievalToolConfig
from rlinf.data.messages.responses import Prompt
from rlinf.errors import AgentError
from tests.unit.agents.conversations import QWEN2_5, make_tokenizer


class Service(ThreadingHTTPServer):
    """Answers each request with what a test has set."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.reply: Any = None
        self.requests: list[Any] = []
        self.num_unanswered = 0
        self.is_over = threading.Event()


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_POST(self) -> None:
        self.server.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        if len(self.server.requests) <= self.server.num_unanswered:
            self.server.is_over.wait()
            return
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
        service.is_over.set()
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


def played(service: Service, **keys: Any) -> str:
    """Return what the model reads of a search."""
    url = f"http://127.0.0.1:{service.server_port}/retrieve"
    cfg = RetrievalToolConfig(tool_type="retrieval", url=url, timeout_seconds=0.5, **keys)
    box = ToolBox({"search": cfg}, make_tokenizer(QWEN2_5))

    async def play() -> str:
        async with box.open(Prompt(index=0, token_ids=(1,), text="x"), defaultdict(float)) as tools:
            query = ToolCall(id="call_0", name="search", arguments={"query": "capital"}, error=None, text="capital")
            (message,) = await tools.run([query])
            return str(message["content"])

    return asyncio.run(play())


def test_a_service_that_does_not_answer_at_first_is_asked_again(service: Service) -> None:
    service.reply = {"result": [["Paris"]]}
    service.num_unanswered = 1
    assert played(service, max_retries=1) == "Doc 1: Paris"


def test_a_service_that_hangs_fails_the_episode_rather_than_the_model(service: Service) -> None:
    service.num_unanswered = 2
    with pytest.raises(AgentError, match="did not answer in attempt 2 of 2, within 0.5 s"):
        played(service, max_retries=1)
