"""Programs on the ``openai`` package, each in a process of its own or as a function, train the model that they use."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.docs.documents import snippets
from tests.e2e.conftest import REPO, read_metrics
from tests.e2e.tiny_math import load_example

pytest.importorskip("transformers")
pytest.importorskip("datasets")
pytest.importorskip("openai")

pytestmark = pytest.mark.timeout(400)
RECIPE = "tiny_retry_grpo"
MULTI_TURN = "agent={workflow: multi_turn, max_turns: 2, max_context_tokens: 128}"
PAGE = REPO / "docs/source-en/guides/agent_programs.md"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Make a model and questions; returns what a short run on them needs."""
    folder = tmp_path_factory.mktemp("sdk")
    load_example("make_tiny_model").make_tiny_model(folder / "model", max_context_tokens=128, initializer_range=0.1)
    rows = [{"question": f"{a}+{b}=", "answer": str(a + b)} for a in range(10, 20) for b in (1, 2)]
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    return [
        "runner.max_epochs=1",
        "runner.val_check_interval=-1",
        "~runner.stop_at",
        f"data.train_data_paths=[{folder}/train.jsonl]",
        "data.val_data_paths=[]",
        "data.rollout_batch_size=4",
        "algorithm.group_size=2",
        "actor.global_batch_size=8",
        "+reward.rewards.short={reward_type: function, function: 'tests.e2e.reasoning_rewards:short'}",
        f"actor.model.model_path={folder}/model",
    ]


def samples(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "samples" / "step_00000001.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_the_program_of_the_guide_trains_as_the_workflow_in_process_does(
    run_text_recipe: Callable[..., Path], tmp_path: Path
) -> None:
    """The very tokens, and the same losses follow."""
    program = tmp_path / "my_agent.py"
    program.write_text("".join(snippet.text for snippet in snippets(PAGE, "python")))
    inside = run_text_recipe(MULTI_TURN)
    outside = run_text_recipe(
        f"agent={{workflow: program, command: [python, {program}], max_turns: 2, max_context_tokens: 128}}"
    )
    answers = [[row["answer"] for row in samples(folder)] for folder in (inside, outside)]
    assert answers[0] == answers[1]
    (before,), (after,) = ([r for r in read_metrics(folder) if r["step"] > 0] for folder in (inside, outside))
    assert after["rollout/server/requests"] == before["rollout/turns"] == after["rollout/turns"]
    assert after["rollout/forks"] == after["rollout/server/undelivered"] == 0
    assert after["train/grad_norm"] == before["train/grad_norm"] > 0
    kinds = ("train/", "rollout/reward")
    assert {k: v for k, v in before.items() if k.startswith(kinds)} == {
        k: v for k, v in after.items() if k.startswith(kinds)
    }


def test_the_example_runs(start_run: Callable[..., Any], one_node: str, keys: list[str], tmp_path: Path) -> None:
    """Its program is a function beside the script that is started."""
    run = start_run(
        "tiny_sdk_grpo",
        *keys,
        f"runner.logger.log_path={tmp_path}",
        env={"PYTHONPATH": os.environ.get("PYTHONPATH", str(REPO)), "RAY_ADDRESS": one_node},
        entry=REPO / "examples" / "agents" / "main_agents.py",
    )
    assert run.wait() == 0, run.output[-4000:]
    (record,) = (record for record in read_metrics(tmp_path / "tiny_sdk_grpo") if record["step"] > 0)
    assert record["rollout/server/requests"] == record["rollout/turns"] > 1
    assert record["train/grad_norm"] > 0
    assert not run.survivors()
