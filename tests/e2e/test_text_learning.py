"""A language model learns by GRPO, from random weights and within a minute."""

from __future__ import annotations

import json
import random
import string
from pathlib import Path

import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.runners.launch import launch_reasoning
from tests.e2e.conftest import read_metrics
from tests.e2e.tiny_math import load_example

pytestmark = pytest.mark.timeout(600)
STEPS = 25


def write_questions(folder: Path, **sizes: int) -> None:
    """Write files of questions such as ``kx7``, whose answer is the digit; no two have the same letters and digit."""
    chance = random.Random(0)
    pairs = [a + b for a in string.ascii_lowercase for b in string.ascii_lowercase]
    rows = [{"question": pair + digit, "answer": digit} for pair in pairs for digit in string.digits]
    chance.shuffle(rows)
    for name, size in sizes.items():
        part, rows = rows[:size], rows[size:]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))


def test_greedy_accuracy_on_unseen_prompts_rises(one_node: None, tmp_path: Path) -> None:
    maker = load_example("make_tiny_model")
    maker.make_tiny_model(tmp_path / "model", hidden_size=64, num_layers=2, max_context_tokens=32)
    write_questions(tmp_path, train=2000, val=200)
    keys = [
        f"runner.max_epochs={STEPS}",
        f"runner.val_check_interval={STEPS}",
        "~runner.stop_at",
        f"runner.logger.log_path={tmp_path}",
        f"data.train_data_paths=[{tmp_path}/train.jsonl]",
        f"data.val_data_paths=[{tmp_path}/val.jsonl]",
        "data.rollout_batch_size=64",
        "algorithm.group_size=16",
        "algorithm.sampling_params.max_new_tokens=1",
        f"actor.model.model_path={tmp_path}/model",
        "actor.optim.lr=3e-3",
    ]
    launch_reasoning(validate_cfg(load_recipe("tiny_math_grpo", keys)))
    before, *_, after = [
        record["eval/accuracy"] for record in read_metrics(tmp_path / "tiny_math_grpo") if "eval/accuracy" in record
    ]
    assert before <= 0.15
    assert after >= 0.9
