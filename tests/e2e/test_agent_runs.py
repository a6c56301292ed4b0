"""Episodes of several turns as a whole run: played by the reward ranks, rewarded, and trained on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import REPO, read_metrics
from tests.e2e.tiny_math import load_example

pytest.importorskip("transformers")
pytest.importorskip("datasets")
pytest.importorskip("math_verify")

pytestmark = pytest.mark.timeout(400)
RECIPE = "tiny_retry_grpo"
PLUGIN = {"RLINF_EXT_MODULE": "tests.e2e.agent_workflows", "PYTHONPATH": str(REPO)}
ONE_TURN = ("~reward.rewards.right", "runner.val_check_interval=-1")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Make a model and questions; returns what a short run on them needs."""
    folder = tmp_path_factory.mktemp("retry")
    load_example("make_tiny_model").make_tiny_model(folder / "model", max_context_tokens=128, initializer_range=0.1)
    rows = [{"question": f"{a}+{b}=", "answer": str(a + b)} for a in range(10, 50) for b in (1, 2)]
    for name in ("train", "val"):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    return [
        "runner.max_epochs=2",
        "runner.val_check_interval=2",
        "~runner.stop_at",
        f"data.train_data_paths=[{folder}/train.jsonl]",
        f"data.val_data_paths=[{folder}/val.jsonl]",
        "data.rollout_batch_size=8",
        "data.max_val_prompts=8",
        "actor.global_batch_size=16",
        "+reward.rewards.short={reward_type: function, function: 'tests.e2e.reasoning_rewards:short'}",
        f"actor.model.model_path={folder}/model",
    ]


@pytest.fixture(scope="module")
def finished(run_text_recipe: Callable[..., Path]) -> Path:
    return run_text_recipe()


def samples(folder: Path, step: int) -> list[dict[str, Any]]:
    lines = (folder / "samples" / f"step_{step:08d}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_episodes_have_turns_and_are_trained_on(finished: Path) -> None:
    records = [record for record in read_metrics(finished) if record["step"] > 0]
    assert len(records) == 2
    for record in records:
        assert 1 < record["rollout/turns"] <= 3
        assert record["rollout/own_tokens"] + record["rollout/context_tokens"] == record["rollout/response_length"]
        assert record["rollout/forks"] == record["rollout/episode_timeouts"] == 0
        assert record["train/grad_norm"] > 0
    assert records[-1]["eval/accuracy"] >= 0


def test_samples_hold_the_conversation(finished: Path) -> None:
    rows = samples(finished, 1) + samples(finished, 2)
    assert len(rows) == 2 * 8 * 4
    for row in rows:
        said = [message["content"] for message in row["messages"] if message["role"] == "assistant"]
        assert row["answer"] == said[-1]
        assert row["reward_terms"]["right"] == float(row["answer"] == row["reference"])
        assert 1 <= len(said) <= 3


def test_one_turn_that_is_played_is_what_an_engine_does_by_itself(
    run_text_recipe: Callable[..., Path], start_run: Callable[..., Any], one_node: str, keys: list[str], tmp_path: Path
) -> None:
    """Bit for bit: the same tokens are sampled, and the same losses follow."""
    plain, played = run_text_recipe("~agent", "+agent={workflow: rlvr}", *ONE_TURN), tmp_path / RECIPE
    run = start_run(
        RECIPE,
        *keys,
        *ONE_TURN,
        "agent={workflow: played_rlvr}",
        f"runner.logger.log_path={tmp_path}",
        env={**PLUGIN, "RAY_ADDRESS": one_node},
        entry=REPO / "examples" / "reasoning" / "main_grpo.py",
    )
    assert run.wait() == 0, run.output[-4000:]
    assert all("rollout/turns" not in record for record in read_metrics(plain))
    assert read_metrics(played)[-1]["rollout/turns"] == 1
    for step in (1, 2):
        answers, others = ([row["answer"] for row in samples(folder, step)] for folder in (plain, played))
        assert answers == others
    for before, after in zip(read_metrics(plain), read_metrics(played), strict=True):
        kinds = ("train/", "rollout/reward")
        assert {name: value for name, value in before.items() if name.startswith(kinds)} == {
            name: value for name, value in after.items() if name.startswith(kinds)
        }


@pytest.mark.parametrize("loss_agg_func", ["token-mean", "seq-mean-token-mean"])
def test_histories_that_are_rewritten_are_trained_on(
    start_run: Callable[..., Any], one_node: str, keys: list[str], tmp_path: Path, loss_agg_func: str
) -> None:
    """Two branches of an episode: one reward, one advantage, and the engine's numbers agree with the trainer's."""
    run = start_run(
        RECIPE,
        *keys,
        *ONE_TURN,
        "agent={workflow: rewriting, max_turns: 3, max_context_tokens: 128}",
        "algorithm.sampling_params.min_new_tokens=2",  # a turn without text cannot be rewritten
        f"algorithm.loss_agg_func={loss_agg_func}",
        f"runner.logger.log_path={tmp_path}",
        env={**PLUGIN, "RAY_ADDRESS": one_node},
        entry=REPO / "examples" / "reasoning" / "main_grpo.py",
    )
    assert run.wait() == 0, run.output[-4000:]
    records = [record for record in read_metrics(tmp_path / RECIPE) if record["step"] > 0]
    assert len(records) == 2
    for record in records:
        assert 1.5 < record["rollout/branches"] <= 2  # a token that is replaced by itself continues its turn
        assert record["rollout/turns"] == 3
        assert record["train/grad_norm"] > 0
        assert record["rollout/mismatch_perplexity_ratio"] == pytest.approx(1, abs=1e-3)
    assert not run.survivors()
