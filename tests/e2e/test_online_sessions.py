"""Online learning: a run serves the example's client, a process of its own, and trains on what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlinf.scheduler.probe import find_free_port
from tests.e2e.conftest import REPO, read_metrics
from tests.e2e.tiny_math import load_example

pytest.importorskip("transformers")
pytest.importorskip("datasets")
pytest.importorskip("openai")

pytestmark = pytest.mark.timeout(400)
RECIPE = "tiny_online_reinpp"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a model, and questions."""
    folder = tmp_path_factory.mktemp("online")
    load_example("make_tiny_model").make_tiny_model(folder / "model", max_context_tokens=128, initializer_range=0.1)
    rows = [{"question": f"{a}+{b}=", "answer": str(a + b)} for a in range(10, 20) for b in (1, 2)]
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def keys(folder: Path) -> list[str]:
    return [
        "runner.max_epochs=3",
        "data.rollout_batch_size=8",
        "actor.global_batch_size=8",
        "agent.api_key=application",
        f"actor.model.model_path={folder}/model",
    ]


def samples(folder: Path, step: int) -> list[dict[str, Any]]:
    lines = (folder / "samples" / f"step_{step:08d}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_a_client_in_another_process_trains_the_model(run_text_recipe: Callable[..., Path], folder: Path) -> None:
    port = find_free_port()
    command = [sys.executable, "examples/agents/online_client.py", f"{folder}/questions.jsonl", "--users=24"]
    client = subprocess.Popen(
        [
            *command,
            f"--base-url=http://127.0.0.1:{port}/v1",
            "--api-key=application",
            "--delay=0.05",
            "--random-feedback",
        ],
        cwd=REPO,
        env={**os.environ, "NO_PROXY": "*"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        run = run_text_recipe(f"agent.port={port}")
        output, _ = client.communicate(timeout=60)
    finally:
        client.kill()
    assert client.returncode == 0, output
    said = re.fullmatch(r"end after (\d+) questions, (\d+) not trained on: 0\.\d+", output.splitlines()[-1])
    assert said is not None, output
    records = [record for record in read_metrics(run) if record["step"] > 0]
    assert len(records) == 3
    for record in records:
        found = samples(run, record["step"])
        assert len(found) == 8
        assert {sample["reward"] for sample in found} <= {0.0, 1.0}
        assert record["rollout/reward"] == pytest.approx(sum(sample["reward"] for sample in found) / 8)
        assert record["rollout/server/requests"] == 1.0
        assert record["rollout/staleness_max"] <= 4.0  # max_token_age of the recipe
        assert record["train/grad_norm"] > 0 or len({sample["reward"] for sample in found}) == 1
    # The others were trained on, waited for the next steps (two at most), or the run's end came before their feedback.
    assert int(said[1]) - int(said[2]) <= 3 * 8 + 2 * 8 + 24
