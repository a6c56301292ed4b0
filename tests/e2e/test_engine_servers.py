"""A run that generates on engine servers: it learns what it learns with an engine of its own, also if a server dies."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlinf.config import load_recipe, validate_cfg
from tests.e2e.conftest import REPO, read_metrics

pytest.importorskip("transformers")
pytest.importorskip("datasets")
pytest.importorskip("math_verify")

pytestmark = pytest.mark.timeout(400)
RECIPE = "tiny_math_grpo"
TINY = (
    "runner.max_epochs=3",
    "runner.val_check_interval=-1",
    "~runner.stop_at",
    "data.rollout_batch_size=8",
    "data.max_val_prompts=8",
    "actor.global_batch_size=16",
    "+reward.rewards.short={reward_type: function, function: 'tests.e2e.reasoning_rewards:short'}",
)


class Server:
    """``rlinf serve`` as a process of its own."""

    def __init__(self, rank: int, *overrides: str) -> None:
        command = [sys.executable, "-m", "rlinf", "serve", RECIPE, *overrides, "--port", "0", "--rank", str(rank)]
        self.process = subprocess.Popen(command, cwd=REPO, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.lines: list[str] = []
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r"(http://\S+): ready", line):
                self.url = found[1]
                break
        else:
            pytest.fail(f"the server has ended:\n{''.join(self.lines)[-4000:]}")
        threading.Thread(target=self.lines.extend, args=(self.process.stderr,), daemon=True).start()

    def health(self) -> Any:
        with urllib.request.urlopen(f"{self.url}/health", timeout=30) as response:
            return json.load(response)

    def signal_at_version(self, version: int, number: int) -> None:
        """Send a signal once the weights are of a version, as soon as a request is being generated."""
        while self.health()["version"] < version:
            time.sleep(0.005)
        os.kill(self.process.pid, number)

    def close(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGCONT)
            self.process.terminate()
        try:
            self.process.wait(30)
        finally:
            self.process.kill()


@pytest.fixture(scope="module")
def overrides(questions: Path) -> list[str]:
    return [
        *TINY,
        f"data.train_data_paths=[{questions}/train.jsonl]",
        f"data.val_data_paths=[{questions}/val.jsonl]",
        f"actor.model.model_path={questions}/model",
    ]


@pytest.fixture
def serve(overrides: list[str]) -> Iterator[Callable[..., Server]]:
    servers = []

    def start(rank: int = 0, *further: str) -> Server:
        servers.append(Server(rank, *overrides, *further))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def run_recipe(one_node: None, overrides: list[str], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    from rlinf.runners.launch import launch_reasoning

    def run(*further: str) -> Path:
        log_path = tmp_path_factory.mktemp("run")
        keys = [*overrides, *further, f"runner.logger.log_path={log_path}"]
        launch_reasoning(validate_cfg(load_recipe(RECIPE, keys)))
        return log_path / RECIPE

    return run


@pytest.fixture(scope="module")
def expected(run_recipe: Callable[..., Path]) -> list[dict[str, Any]]:
    """Return the metrics of the run whose engine is in its rollout worker."""
    return read_metrics(run_recipe())


def client(*servers: Server) -> tuple[str, ...]:
    urls = ", ".join(f"'{server.url}'" for server in servers)
    return (
        "rollout.rollout_backend=server",
        f"+rollout.server={{base_urls: [{urls}], timeout_seconds: 6, health_interval_seconds: 0.5}}",
    )


def assert_same(folder: Path, expected: list[dict[str, Any]]) -> None:
    """Which responses an engine computes together changes the last digit of its log-probabilities, and no token."""
    found = read_metrics(folder)
    assert [record["step"] for record in found] == [record["step"] for record in expected]
    for record, other in zip(found, expected, strict=True):
        names = [name for name in other if name.startswith(("train/", "rollout/", "eval/"))]
        assert "train/grad_norm" in names or record["step"] == 0
        for name in names:
            is_of_engine = name.startswith("rollout/mismatch_")
            assert record[name] == (pytest.approx(other[name], abs=1e-5) if is_of_engine else other[name]), name


def test_two_servers_behind_a_router_are_as_good_as_an_engine_of_its_own(
    run_recipe: Callable[..., Path], serve: Callable[..., Server], expected: list[dict[str, Any]]
) -> None:
    servers = [serve(0), serve(1)]
    router = serve(0, *client(*servers))
    assert_same(run_recipe(*client(router)), expected)
    assert [server.health()["version"] for server in (*servers, router)] == [3, 3, 3]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hanging"])
def test_a_server_that_dies_in_the_middle_changes_nothing(
    run_recipe: Callable[..., Path], serve: Callable[..., Server], expected: list[dict[str, Any]], how: signal.Signals
) -> None:
    servers = [serve(0), serve(1)]
    killer = threading.Thread(target=servers[0].signal_at_version, args=(1, how))
    killer.start()
    folder = run_recipe(*client(*servers))
    killer.join(30)
    assert not killer.is_alive()
    assert_same(folder, expected)
    assert servers[1].health()["version"] == 3
