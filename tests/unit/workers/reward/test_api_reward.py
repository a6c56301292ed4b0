"""Rewards of actions and of text from a service."""

from __future__ import annotations

import base64
import dataclasses
import json
import threading
import traceback
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import numpy as np
import pytest
from reward_requests import request

from rlinf.algorithms.rewards import get_reward_class
from rlinf.config.schema.reward import ApiRewardConfig, TextApiRewardConfig
from rlinf.data.messages.responses import RewardQuery
from rlinf.errors import RewardError
from rlinf.utils import json_service


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that serves what a function makes of each body; it returns the address and the bodies."""
    monkeypatch.setattr(json_service, "FIRST_PAUSE_SECONDS", 0.001)
    bodies: list[dict[str, Any]] = []
    responders: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status, text = responders[-1](bodies[-1])
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()

    def make(respond: Any) -> Any:
        responders.append(respond)
        return f"http://127.0.0.1:{server.server_port}/score", bodies

    yield make
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def action_service(serve: Any) -> Any:
    """Return a function that builds the reward of actions whose service gives the given answers in turn."""

    def make(*given: Any, **keys: Any) -> Any:
        answers = list(given)
        url, bodies = serve(lambda body: answers.pop(0))
        defaults = {"obs_keys": ["states", "task"], "timeout_seconds": 10.0}
        return get_reward_class("api")(ApiRewardConfig(reward_type="api", url=url, **{**defaults, **keys})), bodies

    return make


@pytest.fixture
def text_service(serve: Any) -> Any:
    """Return a function that builds the reward of texts whose service gives what a function makes of each body."""

    def make(respond: Any, **keys: Any) -> Any:
        url, bodies = serve(respond)
        return get_reward_class("text_api")(TextApiRewardConfig(reward_type="text_api", url=url, **keys)), bodies

    return make


def asked(*texts: str, **fields: Any) -> Any:
    return [RewardQuery(prompt="2+2=", response=text, **fields) for text in texts]


def test_a_service_is_sent_observations_and_answers_one_number_per_environment(action_service: Any) -> None:
    reward, bodies = action_service((200, '{"rewards": [1.5, 2.5, 3.5]}'))
    assert reward(request()).tolist() == [[0.0, 1.5], [2.5, 0.0], [0.0, 0.0]]
    (body,) = bodies
    states = body["obs"]["states"]
    array = np.frombuffer(base64.b64decode(states["data"]), states["dtype"]).reshape(states["shape"])
    assert array.tolist() == [[1.0], [9.0], [3.0]]
    assert body["obs"]["task"] == ["a", "end", "c"]
    assert body["rewards"] == [1.5, 2.0, 0.0]
    assert body["done"] == [False, True, False]


def test_failures_of_a_service_are_tried_again_and_then_told(action_service: Any) -> None:
    reward, bodies = action_service((503, ""), (200, "no json"), (200, '{"rewards": [1, 2, 3]}'))
    assert reward(request())[0, 1] == 1.0
    assert len(bodies) == 3
    reward, _ = action_service((500, ""), (500, ""), max_retries=1)
    with pytest.raises(RewardError, match="attempt 2 of 2") as failure:
        reward(request())
    assert "127.0.0.1" in str(failure.value)


@pytest.mark.parametrize("answer", [(404, ""), (200, '{"rewards": [1, 2]}'), (200, '{"reward": 1}'), (200, "[1]")])
def test_what_would_fail_again_is_not_repeated(action_service: Any, answer: Any) -> None:
    reward, bodies = action_service(answer)
    with pytest.raises(RewardError):
        reward(request())
    assert len(bodies) == 1


def test_keys_that_the_environment_does_not_show_are_an_error(action_service: Any) -> None:
    reward, _ = action_service(obs_keys=["main_images"])
    with pytest.raises(RewardError, match=r"main_images.*states, task"):
        reward(request())


# -- text_api ----------------------------------------------------------------------------------------------------------


def lengths(body: dict[str, Any]) -> Any:
    return 200, json.dumps({"rewards": [len(query["response"]) for query in body["queries"]]})


def test_a_service_is_sent_batches_of_whole_queries(text_service: Any) -> None:
    reward, bodies = text_service(lengths, batch_size=2)
    queries = asked("a", "bb", "\ud800\0é", reference={"target": ["4"]}, metadata={"level": 3}, num_tokens=5)
    assert reward(queries) == [1.0, 2.0, 3.0]
    assert [len(body["queries"]) for body in bodies] == [2, 1]
    assert bodies[1]["queries"][0] == {
        "prompt": "2+2=",
        "response": "\ud800\0é",
        "reference": {"target": ["4"]},
        "metadata": {"level": 3},
        "num_tokens": 5,
        "finish_reason": "stop",
        "outcome": None,
        "transcript": [],
    }


def test_a_service_that_fails_is_asked_again(text_service: Any) -> None:
    answers = [(503, ""), (200, "no json"), (200, '{"rewards": [0.5]}')]
    reward, bodies = text_service(lambda body: answers.pop(0))
    assert reward(asked("a")) == [0.5]
    assert len(bodies) == 3


NO_NUMBERS = ["[1, 2]", '["x"]', "null", '"1"', '{"1": 2}', '["1"]', "[[1]]", "[null]", "[1" + 400 * "0" + "]"]


@pytest.mark.parametrize("answer", ["{}", "[]", *(f'{{"rewards": {value}}}' for value in NO_NUMBERS)])
def test_an_answer_of_another_kind_is_shown(text_service: Any, answer: Any) -> None:
    reward, _ = text_service(lambda body: (200, answer))
    with pytest.raises(RewardError, match=r"expected \{\"rewards\": \[1 numbers\]\}"):
        reward(asked("a"))


def test_what_cannot_be_sent_is_named(text_service: Any) -> None:
    reward, bodies = text_service(lengths)
    with pytest.raises(RewardError, match="cannot be sent as JSON"):
        reward(asked("a", reference=object()))
    assert bodies == []


def test_a_response_beyond_the_bound_is_an_error(text_service: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_service, "MOST_BYTES", 100)
    reward, _ = text_service(lambda body: (200, json.dumps({"rewards": [1], "note": "x" * 100})), max_retries=0)
    with pytest.raises(RewardError, match="longer than 100 bytes"):
        reward(asked("a"))


def test_errors_do_not_hold_the_secrets_of_an_address(text_service: Any) -> None:
    answers = [(500, ""), (200, "[]")]
    reward, _ = text_service(lambda body: answers.pop(0), max_retries=0)
    address = f"{reward.cfg.url}?api_key=hunter2&user=me"
    reward.cfg = dataclasses.replace(reward.cfg, url=address)
    for _ in range(2):
        with pytest.raises(RewardError, match=r"/score\?api_key=\*\*\*&user=\*\*\*") as failure:
            reward(asked("a"))
        assert "hunter2" not in "".join(traceback.format_exception(failure.value))
    reward.cfg = dataclasses.replace(reward.cfg, url="http://me:hunter2@127.0.0.1/?key= hunter2")
    with pytest.raises(RewardError) as failure:
        reward(asked("a"))
    assert "hunter2" not in "".join(traceback.format_exception(failure.value))
