"""Runs of episodes whose engine, or whose agent, is killed: nothing is lost, and nothing earns 0 for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.runners.launch import launch_reasoning
from tests.e2e.conftest import read_metrics
from tests.e2e.tiny_math import load_example

pytest.importorskip("transformers")
pytest.importorskip("datasets")

pytestmark = pytest.mark.timeout(400)
RECIPE = "tiny_retry_grpo"
NUM_STEPS, NUM_PROMPTS, GROUP_SIZE = 3, 8, 4


@pytest.mark.parametrize(
    ("kill", "group", "overrides"),
    [
        ("kill_engine", "RolloutGroup", []),
        ("kill_reward_rank", "RewardGroup", []),
        ("kill_agent", "AgentGroup", ["cluster.component_placement={actor: 0, rollout: 0, reward: 0, agent: 0}"]),
    ],
)
def test_episodes_go_on_after_a_death(
    one_node: None, tmp_path: Path, kill: str, group: str, overrides: list[str]
) -> None:
    folder = tmp_path / RECIPE
    load_example("make_tiny_model").make_tiny_model(tmp_path / "model", max_context_tokens=128, initializer_range=0.1)
    rows = [
        {"question": f"{a}+{b}=", "answer": str(a + b), "folder": str(folder)} for a in range(10, 50) for b in (1, 2)
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    keys = [
        f"runner.max_epochs={NUM_STEPS}",
        "runner.val_check_interval=-1",
        "~runner.stop_at",
        "runner.max_restarts=1",
        f"runner.logger.log_path={tmp_path}",
        f"data.train_data_paths=[{tmp_path}/train.jsonl]",
        "data.val_data_paths=[]",
        "data.metadata_keys=[folder]",
        f"data.rollout_batch_size={NUM_PROMPTS}",
        f"algorithm.group_size={GROUP_SIZE}",
        f"actor.global_batch_size={NUM_PROMPTS * GROUP_SIZE}",
        f"+reward.rewards.short={{reward_type: function, function: 'tests.e2e.reasoning_rewards:{kill}'}}",
        "rollout.max_running_requests=4",
        f"actor.model.model_path={tmp_path}/model",
        *overrides,
    ]
    launch_reasoning(validate_cfg(load_recipe(RECIPE, keys)))
    assert (folder / "worker_logs" / f"{group}_0.log").read_text().count("Ready: process") == 2
    records = [record for record in read_metrics(folder) if record["step"] > 0]
    assert [record["step"] for record in records] == [1, 2, 3]
    for record in records:
        assert record["rollout/mismatch_max_probability_difference"] < 1e-4
        assert record["rollout/staleness_max"] == 0
        assert record["rollout/episode_timeouts"] == 0
    for step in (1, 2, 3):
        check_samples(folder / "samples" / f"step_{step:08d}.jsonl")


def check_samples(path: Path) -> None:
    """Every prompt has all its episodes, and each is scored by what it said."""
    samples: list[dict[str, Any]] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(samples) == NUM_PROMPTS * GROUP_SIZE
    for sample in samples:
        assert sample["reward_terms"]["short"] == pytest.approx(1.0 - len(sample["answer"]) / 10)
