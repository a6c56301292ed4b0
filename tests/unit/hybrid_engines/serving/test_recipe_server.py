"""A server of a recipe's engine says what it is and when the engine is loaded, and ends when it is interrupted."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from served_engines import TokenEngine

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.root import LanguageConfig
from rlinf.errors import EngineError
from rlinf.hybrid_engines.serving import recipe_server
from rlinf.hybrid_engines.serving.http_client import HTTPClient
from rlinf.hybrid_engines.serving.recipe_server import serve_recipe

CPU = torch.device("cpu")


class SlowEngine(TokenEngine):
    """Is loaded when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.may_load = threading.Event()
        self.error = ""

    async def start(self) -> None:
        await asyncio.to_thread(self.may_load.wait, 60)
        if self.error:
            raise EngineError(self.error)
        await super().start()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowEngine]:
    """Return the engine that is served, with the arguments that it was built with."""
    made = SlowEngine()

    def build(cfg: LanguageConfig, **arguments: Any) -> SlowEngine:
        made.calls.append(f"built for rank {arguments['rank']} on {arguments['device']}")
        return made

    monkeypatch.setattr(recipe_server, "build_engine", build)
    yield made
    made.may_load.set()


def recipe() -> LanguageConfig:
    """Return a recipe whose model need not be there."""
    cfg = validate_cfg(load_recipe("tiny_math_grpo"))
    assert isinstance(cfg, LanguageConfig)
    return cfg


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def health(port: int, token: str = "") -> tuple[int, dict[str, Any]]:
    """Return what the server says of itself; status 0 while there is none."""

    async def run() -> tuple[int, bytes]:
        client = HTTPClient(f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {token}"} if token else {})
        try:
            return await client.send("GET", "/health", b"")
        finally:
            await client.close()

    try:
        status, content = asyncio.run(run())
    except (OSError, EngineError):
        return 0, {}
    return status, json.loads(content)


def serve_while(
    engine: SlowEngine, visit: Callable[[int], None], stop: signal.Signals = signal.SIGTERM, **options: Any
) -> None:
    """Serve in this thread while another visits the server, and interrupts it then.

    Args:
        engine: That is served.
        visit: Called with the port.
        stop: Sent to this process afterwards.
        options: Of ``serve_recipe``.
    """
    port, ended, failures = free_port(), threading.Event(), []

    def run() -> None:
        try:
            deadline = time.monotonic() + 60
            while not health(port, options.get("token", ""))[0] and time.monotonic() < deadline:
                time.sleep(0.02)
            visit(port)
        except BaseException as error:  # noqa: BLE001 - raised again in the test's own thread
            failures.append(error)
        finally:
            # Interruptions are obeyed once the engine is loaded.
            engine.may_load.set()
            os.kill(os.getpid(), stop)
            if not ended.wait(20):
                failures.append(AssertionError(f"the server goes on after {stop.name}"))
                os.kill(os.getpid(), ({signal.SIGINT, signal.SIGTERM} - {stop}).pop())

    # A signal before the server listens to them does nothing.
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    visitor = threading.Thread(target=run)
    visitor.start()
    try:
        serve_recipe(recipe(), host="127.0.0.1", port=port, device=CPU, **options)
    finally:
        ended.set()
        visitor.join(60)
        for number, handler in before.items():
            signal.signal(number, handler)
    for error in failures:
        raise error


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT], ids=lambda stop: stop.name)
def test_a_server_ends_when_it_is_interrupted(engine: SlowEngine, stop: signal.Signals) -> None:
    engine.may_load.set()

    def visit(port: int) -> None:
        deadline = time.monotonic() + 60
        while not health(port)[1]["is_ready"] and time.monotonic() < deadline:
            time.sleep(0.02)
        status, state = health(port)
        assert (status, state["is_ready"]) == (200, True)
        assert state["rollout_backend"] == "hf"
        assert state["model_path"] == recipe().actor.model.model_path
        assert state["max_context_tokens"] == recipe().max_context_tokens

    serve_while(engine, visit, stop, rank=3)
    assert engine.calls == ["built for rank 3 on cpu", "start", "close"]


def test_a_server_says_that_it_is_loading(engine: SlowEngine) -> None:
    def visit(port: int) -> None:
        status, state = health(port)
        engine.may_load.set()
        assert (status, state["is_ready"], state["ailment"]) == (503, False, "it is being started")

    serve_while(engine, visit)
    assert engine.calls[-1] == "close"


def test_a_server_lets_in_who_has_its_token(engine: SlowEngine) -> None:
    engine.may_load.set()

    def visit(port: int) -> None:
        assert health(port)[0] == 401
        assert health(port, "secret")[0] == 200

    serve_while(engine, visit, token="secret")


def test_an_engine_that_cannot_start_ends_its_server(engine: SlowEngine) -> None:
    engine.error = "no such model"

    def visit(port: int) -> None:
        engine.may_load.set()

    with pytest.raises(EngineError, match="no such model"):
        serve_while(engine, visit)


def test_a_port_that_is_taken_ends_the_server(engine: SlowEngine) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with pytest.raises(OSError, match="address already in use"):
            serve_recipe(recipe(), host="127.0.0.1", port=listening.getsockname()[1], device=CPU)
    assert "start" not in engine.calls
