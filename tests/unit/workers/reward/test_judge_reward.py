"""``reward_type: judge``: what is asked, what replies are worth, and what a server may do wrong."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rlinf.algorithms.rewards import get_reward_class
from rlinf.algorithms.rewards.extraction import reward_of_reply
from rlinf.config.schema.reward import JudgeRewardConfig
from rlinf.data.messages.responses import RewardQuery
from rlinf.errors import RewardError
from rlinf.utils import json_service

Respond = Callable[[dict[str, Any]], tuple[int, Any]]


class Server:
    """Speaks the OpenAI protocol as a function says, and keeps what it was sent."""

    def __init__(self, respond: Respond) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.keys: list[str | None] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.bodies.append(body)
                server.paths.append(self.path)
                server.keys.append(self.headers["Authorization"])
                status, reply = respond(body)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(reply).encode())

            def log_message(self, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}/v1"

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Respond], Server]]:
    monkeypatch.setattr(json_service, "FIRST_PAUSE_SECONDS", 0.001)
    servers: list[Server] = []

    def start(respond: Respond) -> Server:
        servers.append(Server(respond))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def completion(text: str) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": text}}]}


def judged(server: Server, *responses: str, **keys: Any) -> list[float]:
    cfg = JudgeRewardConfig(reward_type="judge", url=server.url, model="m", **keys)
    reward = get_reward_class("judge")(cfg)
    queries = [RewardQuery(prompt="2+2?", response=response, reference=[4, "four"]) for response in responses]
    try:
        return list(reward(queries))
    finally:
        reward.close()


def test_the_model_is_shown_question_reference_and_response_and_judges_in_their_order(serve: Any) -> None:
    held = threading.Barrier(3, timeout=60)

    def respond(body: dict[str, Any]) -> tuple[int, Any]:
        held.wait()  # all three are judged at a time
        text = body["messages"][0]["content"]
        return 200, completion("It is CORRECT." if "Response: 4\n" in text else "incorrect")

    server = serve(respond)
    assert judged(server, "5", "4", "6", api_key="secret") == [0.0, 1.0, 0.0]
    assert set(server.paths) == {"/v1/chat/completions"}
    assert set(server.keys) == {"Bearer secret"}
    body = next(body for body in server.bodies if "Response: 4\n" in body["messages"][0]["content"])
    assert "Question: 2+2?" in body["messages"][0]["content"]
    assert "Reference answer: [4, 'four']" in body["messages"][0]["content"]
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("m", 0.0, 512)


def test_what_a_response_says_is_never_filled_in(serve: Any) -> None:
    server = serve(lambda body: (200, completion("0.5")))
    keys = {"question": "{response}|{prompt}|{other}", "replies": {}}
    assert judged(server, "{reference} {prompt}", **keys) == [0.5]
    assert server.bodies[0]["messages"] == [{"role": "user", "content": "{reference} {prompt}|2+2?|{other}"}]
    assert server.keys == [None]


def test_no_more_responses_are_judged_at_a_time_than_allowed(serve: Any) -> None:
    running: list[int] = []

    def respond(body: dict[str, Any]) -> tuple[int, Any]:
        running.append(threading.get_ident())
        time.sleep(0.005)
        others = len(set(running))
        running.remove(threading.get_ident())
        return 200, completion(str(others))

    assert judged(serve(respond), *"abcdef", max_running_requests=1, replies={}) == [1.0] * 6


@pytest.mark.parametrize("reply", [{}, [], {"choices": []}, {"choices": [{"message": {"content": None}}]}, "correct"])
def test_what_is_no_completion_is_an_error(serve: Any, reply: Any) -> None:
    with pytest.raises(RewardError, match="expected a chat completion with a text"):
        judged(serve(lambda body: (200, reply)), "4")


def test_a_server_that_recovers_gets_the_request_again_and_one_that_refuses_is_not(serve: Any) -> None:
    given = iter([(503, {}), (200, completion("correct"))])
    server = serve(lambda body: next(given))
    assert judged(server, "4") == [1.0]
    assert len(server.bodies) == 2
    server = serve(lambda body: (401, {"error": "key"}))
    with pytest.raises(RewardError, match="attempt 1 of 4"):
        judged(server, "4", api_key="secret")
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    ("reply", "reward"),
    [("Yes", 1.0), ("yes, or rather NO.", -1.0), ("nothing", 0.25), ("", 0.25), ("noyes", 0.25)],
)
def test_the_last_known_word_of_a_reply_counts(reply: str, reward: float) -> None:
    assert reward_of_reply(reply, {"yes": 1.0, "No": -1.0}, 0.25) == reward


@pytest.mark.parametrize(("reply", "reward"), [("3 of 10: .5", 0.5), ("-2", -2.0), ("none", 0.25)])
def test_without_words_the_last_number_counts(reply: str, reward: float) -> None:
    assert reward_of_reply(reply, {}, 0.25) == reward
