"""A main agent that delegates, and its sub-agents, as a whole run: each agent's turns are trained on."""

from __future__ import annotations

import importlib
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.telemetry.rundir import dump_folder
from rlinf.workers.actor.step_dump import read_step
from rlinf.workers.actor.text_samples import make_text_samples
from tests.e2e.conftest import REPO, read_metrics

pytest.importorskip("transformers")
pytest.importorskip("datasets")
pytest.importorskip("math_verify")

pytestmark = pytest.mark.timeout(400)
RECIPE = "tiny_calculator_grpo"
STEPS_OF_DEMONSTRATIONS = 60
"""The model then delegates as a rule, and errs often enough for groups to have advantages."""


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    # The script finds its neighbours where Python looks for modules.
    sys.path.insert(0, str(REPO / "examples" / "agents"))
    try:
        return importlib.import_module("make_tiny_agents")
    finally:
        sys.path.remove(str(REPO / "examples" / "agents"))


@pytest.fixture(scope="module")
def keys(maker: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Make a model that demonstrations have taught to delegate; returns what a short run on it needs."""
    folder = tmp_path_factory.mktemp("delegate")

    def demonstrate(row: dict[str, Any], chance: random.Random) -> list[tuple[str, bool]]:
        if chance.random() < 0.5:  # as the sub-agent, which is asked with an equals sign
            return [(f"<user>{row['question']}=<assistant>", False), (f"{row['answer']}<|im_end|>", True)]
        call = json.dumps({"name": "delegate", "arguments": {"task": row["question"]}}, separators=(",", ":"))
        return [
            (f"<user>{row['question']}<assistant>", False),
            (f"<tool_call>{call}</tool_call><|im_end|>", True),
            (f"<tool>{row['answer']}<assistant>", False),
            (f"{row['answer']}<|im_end|>", True),
        ]

    rows = [{"question": f"{a}*{b}", "answer": str(a * b)} for a, b in ((2, 3), (4, 5), (7, 8), (9, 6))]
    task = maker.Task(
        make_rows=lambda seed: {"train": rows, "val": rows * 8},
        demonstrate=demonstrate,
        max_steps=STEPS_OF_DEMONSTRATIONS,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        maker.make(task, folder, seed=0)
    return [
        "runner.max_epochs=2",
        "runner.val_check_interval=-1",
        "~runner.stop_at",
        "+runner.dump_steps=[1]",
        f"data.train_data_paths=[{folder}/train.jsonl]",
        "data.val_data_paths=[]",
        "data.rollout_batch_size=4",
        "algorithm.group_size=4",
        "actor.global_batch_size=16",
        "+algorithm.recompute_logprobs=true",
        f"actor.model.model_path={folder}/model",
        "agent={workflow: delegate, max_turns: 3, worker_turns: 2, worker_prompt: '{task}=', max_context_tokens: 128}",
    ]


@pytest.fixture(scope="module")
def finished(run_text_recipe: Callable[..., Path]) -> Path:
    return run_text_recipe()


def test_every_agent_is_a_branch_of_its_episode(finished: Path) -> None:
    records = [record for record in read_metrics(finished) if record["step"] > 0]
    assert len(records) == 2
    for record in records:
        assert record["rollout/branches"] == 1 + record["rollout/tool/delegate_calls"] > 1.5
        assert record["rollout/turns"] > record["rollout/branches"], "main agents go on when sub-agents have replied"
        assert record["rollout/forks"] == record["rollout/episode_timeouts"] == 0
        assert record["rollout/mismatch_perplexity_ratio"] == pytest.approx(1, abs=1e-3)
    assert records[0]["train/grad_norm"] > 0


def test_main_agents_and_sub_agents_are_trained_on(finished: Path, keys: list[str], maker: ModuleType) -> None:
    """What is trained on are each agent's own turns, with the advantage of the episode."""
    batch = read_step(dump_folder(finished, 1)).batch
    algorithm = validate_cfg(load_recipe(RECIPE, keys)).algorithm
    samples, _ = make_text_samples(batch, algorithm=algorithm, trainer_logprobs=batch.split(batch.logprobs))
    tokenizer = maker.make_tokenizer(roles=maker.ROLES, tags=maker.TAGS)
    learning = 0
    for number, episode in enumerate(batch.responses):
        chosen = samples.select_episodes([number])
        columns = [chosen.tokens[name] for name in ("loss_mask", "advantages")]
        main, *others = zip(chosen.prompts, chosen.responses, *columns, strict=True)
        said = [tokenizer.decode(ids[mask].tolist()) for _, ids, mask, _ in (main, *others)]
        assert said[0].startswith("<tool_call>" * bool(others))
        asked = [tokenizer.decode(ids) for ids, *_ in others]
        assert len(others) == episode.episode_metrics.get("tool/delegate_calls", 0)
        for question, reply in zip(asked, said[1:], strict=True):
            task = question.removeprefix("<user>").removesuffix("=<assistant>")
            assert f'"task":"{task}"' in said[0]
            assert reply.endswith("<|im_end|>")
        (advantage,) = {float(value) for _, _, mask, values in (main, *others) for value in values[mask]}
        learning += advantage != 0 and bool(others)
    assert learning > 0
