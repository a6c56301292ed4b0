"""Hostile answers through every reward at once: all are judged, and nothing gets out or stays behind."""

from __future__ import annotations

import asyncio
import json
import math
import os
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
from hostile_strings import STRINGS
from test_model_reward import save_model

from rlinf.config.registries import rewards
from rlinf.config.schema.reward import (
    CodeRewardConfig,
    FunctionRewardConfig,
    JudgeRewardConfig,
    MathRewardConfig,
    OverlongRewardConfig,
    SearchR1RewardConfig,
    TextApiRewardConfig,
    TextModelRewardConfig,
    TextRewardConfig,
    TextRewardsConfig,
    VQARewardConfig,
    WideSeekR1RewardConfig,
    WorkflowRewardConfig,
)
from rlinf.data.messages.responses import RewardQuery
from rlinf.errors import RewardError
from rlinf.utils.sandbox import Sandbox, SandboxLimits
from rlinf.workers.reward.reward_worker import WeightedRewards
from tests.unit.utils.hostile_programs import filled
from tests.unit.utils.test_sandbox import PLACES, assert_nothing_left


class LengthService(BaseHTTPRequestHandler):
    """Answers how long each answer is."""

    def do_POST(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "queries" in sent:
            reply: Any = {"rewards": [len(query["response"]) for query in sent["queries"]]}
        else:
            reply = {"choices": [{"message": {"content": str(len(sent["messages"][0]["content"]))}}]}
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), LengthService) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def terms(folder: Path, url: str) -> dict[str, TextRewardConfig]:
    """Return every reward of text that there is, most of them in several forms."""
    pytest.importorskip("math_verify", reason="needs math-verify; run: pip install 'rlinf[reasoning]'")
    save_model(folder, 1)
    return {
        "code": CodeRewardConfig(
            reward_type="code", timeout_seconds=2.0, wall_timeout_seconds=3.0, memory_bytes=256 << 20
        ),
        "function": FunctionRewardConfig(reward_type="function", function="reward_functions:length"),
        "judge": JudgeRewardConfig(reward_type="judge", url=url, model="m", replies={}, max_retries=0),
        "math": MathRewardConfig(reward_type="math", timeout_seconds=1.0),
        "boxed": MathRewardConfig(
            reward_type="math", timeout_seconds=1.0, require_boxed=True, reference_format="gsm8k"
        ),
        "overlong": OverlongRewardConfig(reward_type="overlong", max_tokens=8, buffer_tokens=4),
        "searchr1": SearchR1RewardConfig(reward_type="searchr1"),
        "text_api": TextApiRewardConfig(reward_type="text_api", url=url, max_retries=0),
        "text_model": TextModelRewardConfig(reward_type="text_model", model_path=str(folder), max_tokens=64),
        "words": VQARewardConfig(reward_type="vqa"),
        "choice": VQARewardConfig(reward_type="vqa", match="choice"),
        "number": VQARewardConfig(reward_type="vqa", match="number", relative_tolerance=0.1),
        "wideseek_r1": WideSeekR1RewardConfig(reward_type="wideseek_r1"),
        "workflow": WorkflowRewardConfig(reward_type="workflow"),
    }


def processes() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def connections() -> int:
    return len(psutil.Process().net_connections())


@pytest.mark.parametrize("step", [pytest.param(10, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)])
def test_every_reward_judges_every_answer(step: int, tmp_path: Path, service: str) -> None:
    """The programs' own attempts are looked at by ``test_sandbox``; here, what is left outside."""
    try:
        Sandbox(SandboxLimits()).close()
    except RewardError as error:
        pytest.skip(f"programs cannot be isolated on this machine: {error}")
    mark, folder = tmp_path / "mark", tmp_path / "model"
    cfg = TextRewardsConfig(rewards=terms(folder, service))
    places = {place: set(os.listdir(place)) for place in [*PLACES, os.getcwd()]}
    children, connected = processes(), connections()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        told = {"mark": str(mark), "port": server.getsockname()[1], "pid": os.getpid()}
        queries = [
            RewardQuery(prompt="?", response=filled(text, **told), reference="5", num_tokens=len(text), outcome=0.5)
            for text in STRINGS[::step]
        ]
        rewards = WeightedRewards(cfg)
        scores = asyncio.run(rewards.score(queries))
        rewards.close()
        with pytest.raises(BlockingIOError):
            server.accept()
    assert len(scores) == len(queries)
    assert all(set(score) == set(cfg.rewards) and all(map(math.isfinite, score.values())) for score in scores)
    assert {score["code"] for score in scores} == {0.0, 1.0}
    assert not mark.exists()
    assert_nothing_left()
    assert processes() - children == set()
    assert connections() <= connected
    assert "rlinf-mark" not in {name for place in places for name in set(os.listdir(place)) - places[place]}


def test_every_reward_of_text_is_among_them(tmp_path: Path) -> None:
    assert len(STRINGS) >= 200
    assert len(set(STRINGS)) == len(STRINGS)
    text = {name for name in rewards.configs.names() if issubclass(rewards.configs.get(name), TextRewardConfig)}
    assert {term.reward_type for term in terms(tmp_path, "http://127.0.0.1").values()} == text
