"""Rewards of text from a service, and from a model."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
import socketserver
import threading
import time
import traceback
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import torch

from rlinf.algorithms.rewards import get_reward_class
from rlinf.config.schema.text_reward import TextApiRewardConfig, TextModelRewardConfig
from rlinf.data.answers import RewardQuery
from rlinf.errors import ConfigError, RewardError
from rlinf.workers.reward import json_service


def asked(*texts, **fields):
    return [RewardQuery(prompt="2+2=", response=text, **fields) for text in texts]


# -- text_api ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def service(monkeypatch):
    """Return a function that serves what a function makes of each body, and the bodies."""
    monkeypatch.setattr(json_service, "FIRST_PAUSE_SECONDS", 0.001)
    bodies, judges = [], []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status, text = judges[-1](bodies[-1])
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()

    def make(judge, **keys):
        judges.append(judge)
        url = f"http://127.0.0.1:{server.server_port}/score"
        return get_reward_class("text_api")(TextApiRewardConfig(reward_type="text_api", url=url, **keys)), bodies

    yield make
    server.shutdown()
    thread.join()
    server.server_close()


def lengths(body):
    return 200, json.dumps({"rewards": [len(query["response"]) for query in body["queries"]]})


def test_a_service_is_sent_batches_of_whole_queries(service):
    reward, bodies = service(lengths, batch_size=2)
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
    }


def test_a_service_that_fails_is_asked_again(service):
    answers = [(503, ""), (200, "no json"), (200, '{"rewards": [0.5]}')]
    reward, bodies = service(lambda body: answers.pop(0))
    assert reward(asked("a")) == [0.5]
    assert len(bodies) == 3


NO_NUMBERS = ["[1, 2]", '["x"]', "null", '"1"', '{"1": 2}', '["1"]', "[[1]]", "[null]", "[1" + 400 * "0" + "]"]


@pytest.mark.parametrize("answer", ["{}", "[]", *(f'{{"rewards": {value}}}' for value in NO_NUMBERS)])
def test_an_answer_of_another_kind_is_shown(service, answer):
    reward, _ = service(lambda body: (200, answer))
    with pytest.raises(RewardError, match=r"expected \{\"rewards\": \[1 numbers\]\}"):
        reward(asked("a"))


def test_what_cannot_be_sent_is_named(service):
    reward, bodies = service(lengths)
    with pytest.raises(RewardError, match="cannot be sent as JSON"):
        reward(asked("a", reference=object()))
    assert bodies == []


class Dripping(socketserver.BaseRequestHandler):
    """Sends one byte after another, each in good time, and never ends."""

    def handle(self):
        self.request.recv(1 << 16)
        text, drip = self.server.text, self.server.drip
        try:
            self.request.sendall(text)
            while True:
                self.request.sendall(drip)
                time.sleep(0.02)
        except OSError:
            self.server.was_left.set()


@pytest.mark.parametrize(
    ("text", "drip"),
    [(b"", b"H"), (b"HTTP/1.1 200 OK\r\nX: ", b"a"), (b"HTTP/1.1 200 OK\r\n\r\n", b" ")],
    ids=["status", "headers", "body"],
)
def test_the_time_of_a_request_is_that_of_the_whole_response(text, drip):
    """Each byte comes in good time; only the client's leaving ends the service."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Dripping) as server:
        server.text, server.drip, server.was_left = text, drip, threading.Event()
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        with pytest.raises(RewardError, match=r"attempt 1 of 1, within 0\.3 s: \w*: ?.*timed out"):
            json_service.post_json(url, {}, timeout_seconds=0.3, max_retries=0)
        assert server.was_left.wait(60)
        server.shutdown()
        thread.join()


def test_a_silent_service_is_left():
    """It takes the request, begins a response and says nothing more."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def begin():
            with server.accept()[0] as connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n{")
                connection.settimeout(30)  # a client that waits for more reads the end of half a response
                with contextlib.suppress(TimeoutError):
                    while connection.recv(1 << 16):  # the rest of the request, until the client leaves
                        pass

        thread = threading.Thread(target=begin, daemon=True)
        thread.start()
        with pytest.raises(RewardError, match="timed out"):
            json_service.post_json(
                f"http://127.0.0.1:{server.getsockname()[1]}/", {}, timeout_seconds=0.3, max_retries=0
            )
        thread.join()


def test_a_response_beyond_the_bound_is_an_error(service, monkeypatch):
    monkeypatch.setattr(json_service, "MOST_BYTES", 100)
    reward, _ = service(lambda body: (200, json.dumps({"rewards": [1], "note": "x" * 100})), max_retries=0)
    with pytest.raises(RewardError, match="longer than 100 bytes"):
        reward(asked("a"))


def test_errors_do_not_hold_the_secrets_of_an_address(service):
    answers = [(500, ""), (200, "[]")]
    reward, _ = service(lambda body: answers.pop(0), max_retries=0)
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


# -- text_model --------------------------------------------------------------------------------------------------------


def save_model(folder, num_labels):
    transformers = pytest.importorskip("transformers", reason="needs transformers; run: pip install 'rlinf[reasoning]'")
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {"<pad>": 0, "<unk>": 1} | {letter: number for number, letter in enumerate("0123456789+=ab", start=2)}
    model = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=model, pad_token="<pad>", unk_token="<unk>")
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% if m.role == 'user' %}={% endif %}{% endfor %}"
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    cfg = transformers.Qwen2Config(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        num_labels=num_labels,
        pad_token_id=0,
    )
    model = transformers.Qwen2ForSequenceClassification(cfg).eval()
    model.save_pretrained(folder)
    return model, tokenizer


def make_model_reward(folder, **keys):
    reward = get_reward_class("text_model")(
        TextModelRewardConfig(reward_type="text_model", model_path=str(folder), **keys)
    )
    reward.place(torch.device("cpu"))
    return reward


@pytest.mark.parametrize(("num_labels", "template"), [(1, "text"), (3, "text"), (1, "chat")])
def test_a_model_scores_batches_as_it_scores_each_text(tmp_path, num_labels, template):
    model, tokenizer = save_model(tmp_path, num_labels)
    texts = ["4", "5ab", "44444444", "a"]
    joined = "2+2==" if template == "chat" else "2+2="
    expected = []
    for text in texts:
        with torch.no_grad():
            logits = model(**tokenizer(joined + text, return_tensors="pt")).logits[0]
        expected.append(float(logits[0] if num_labels == 1 else logits.softmax(-1)[2]))
    reward = make_model_reward(tmp_path, batch_size=3, label=2 if num_labels > 1 else 0, template=template)
    assert reward(asked(*texts)) == pytest.approx(expected, abs=1e-5)
    assert len(set(expected)) == len(expected)


def test_a_model_that_cannot_serve_is_a_fault_of_the_recipe(tmp_path):
    with pytest.raises(ConfigError, match=r"config\.json"):
        make_model_reward(tmp_path / "absent")
    save_model(tmp_path, 2)
    with pytest.raises(ConfigError, match="labels 0 to 1"):
        make_model_reward(tmp_path, label=2)
