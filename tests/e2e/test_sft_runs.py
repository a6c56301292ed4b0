"""The loop of fine-tuning as a whole: what is learned, what a run leaves behind, resume, ranks and a killed actor."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.config import load_recipe, validate_cfg
from tests.e2e.conftest import read_metrics

transformers = pytest.importorskip("transformers")
pytest.importorskip("datasets")
pytest.importorskip("math_verify")

pytestmark = pytest.mark.timeout(400)
RECIPE = "tiny_math_sft"
STEPS, NUM_VAL = 6, 8
TINY = (
    f"runner.max_steps={STEPS}",
    "runner.val_check_interval=3",
    "runner.save_interval=2",
    "~runner.stop_at",
    "data.max_val_prompts=8",
    "algorithm.update_epoch=5",
    "actor.global_batch_size=16",
)
SHORT = "+reward.rewards.short={reward_type: function, function: 'tests.e2e.reasoning_rewards:short'}"
ALONE = ("~rollout", "~reward", "~algorithm.sampling_params")


@pytest.fixture(scope="module")
def run_recipe(one_node: None, questions: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    from rlinf.runners.launch import launch_sft

    def run(*overrides: str, log_path: Path | None = None) -> Path:
        log_path = log_path or tmp_path_factory.mktemp("run")
        keys = [
            *TINY,
            f"data.train_data_paths=[{questions}/train.jsonl]",
            f"data.val_data_paths=[{questions}/val.jsonl]",
            f"actor.model.model_path={questions}/model",
            f"runner.logger.log_path={log_path}",
        ]
        launch_sft(validate_cfg(load_recipe(RECIPE, [*keys, *overrides])))
        return log_path / RECIPE

    return run


@pytest.fixture(scope="module")
def finished(run_recipe: Callable[..., Any]) -> Any:
    return run_recipe(SHORT)


def hf_folder(folder: Path) -> Path:
    return folder / f"checkpoints/global_step_{STEPS}/hf"


def test_the_loss_falls_and_evaluations_measure_and_ask(finished: Any) -> None:
    records = read_metrics(finished)
    assert [record["step"] for record in records] == list(range(STEPS + 1))
    losses = [record["train/loss"] for record in records[1:]]
    assert losses[-1] < 0.3 * losses[0]
    evaluations = [record for record in records if "eval/loss" in record]
    assert [record["step"] for record in evaluations] == [0, 3, 6]
    assert evaluations[-1]["eval/loss"] < 0.8 * evaluations[0]["eval/loss"]
    assert evaluations[-1]["eval/token_accuracy"] > evaluations[0]["eval/token_accuracy"]
    assert {"eval/accuracy", "eval/response_length"} <= set(evaluations[0])
    assert records[-1]["train/epoch"] == pytest.approx(STEPS * 5 * 16 / 80)
    rows = [json.loads(line) for line in (finished / "evaluations/step_00000006.jsonl").read_text().splitlines()]
    assert [row["prompt"] for row in rows[:2]] == ["<user>50+1=<assistant>", "<user>50+2=<assistant>"]
    assert rows[0]["reference"] == "51"


def test_what_is_saved_is_for_transformers_what_was_trained(finished: Any, questions: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(hf_folder(finished))
    tokenizer = transformers.AutoTokenizer.from_pretrained(hf_folder(finished))
    total = count = 0
    for line in (questions / "val.jsonl").read_text().splitlines()[:NUM_VAL]:
        row = json.loads(line)
        messages = [{"role": "user", "content": row["question"]}]
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        before = tokenizer.encode(prompt, add_special_tokens=False)
        answer = [*tokenizer.encode(row["answer"], add_special_tokens=False), tokenizer.eos_token_id]
        labels = torch.tensor([[-100] * len(before) + answer])
        with torch.no_grad():
            total += model(input_ids=torch.tensor([before + answer]), labels=labels).loss.item() * len(answer)
        count += len(answer)
    assert total / count == pytest.approx(read_metrics(finished)[-1]["eval/loss"], rel=1e-5)


def check_equal(found: Path, expected: Path) -> None:
    for one, other in zip(read_metrics(found), read_metrics(expected), strict=True):
        assert one == other


def test_a_resumed_run_equals_an_undisturbed_one(finished: Any, run_recipe: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / RECIPE
    shutil.copytree(finished, folder)
    shutil.rmtree(folder / f"checkpoints/global_step_{STEPS}")
    run_recipe(SHORT, "runner.resume_dir=auto", log_path=tmp_path)
    assert len(read_metrics(folder)) == STEPS + 1
    check_equal(folder, finished)


def test_a_run_whose_actor_is_killed_ends_as_an_undisturbed_one(
    finished: Any, run_recipe: Callable[..., Any], questions: Path, tmp_path: Path
) -> None:
    folder = tmp_path / RECIPE
    rows = [json.loads(line) for line in (questions / "val.jsonl").read_text().splitlines()]
    path = tmp_path / "val.jsonl"
    path.write_text("".join(json.dumps({**row, "folder": str(folder)}) + "\n" for row in rows))
    run_recipe(
        SHORT,
        "reward.rewards.short.function=tests.e2e.reasoning_rewards:kill_actor",
        f"data.val_data_paths=[{path}]",
        "data.metadata_keys=[folder]",
        "runner.max_restarts=1",
        log_path=tmp_path,
    )
    assert (folder / "worker_logs" / "ActorGroup_0.log").read_text().count("Ready: process") == 2
    check_equal(folder, finished)


def test_two_ranks_without_an_engine_learn_what_one_learns(
    finished: Any, run_recipe: Callable[..., Any], questions: Path, tmp_path: Path
) -> None:
    """Also, conversations are learned as the rows are that they say the same as."""
    for name in ("train", "val"):
        rows = [json.loads(line) for line in (questions / f"{name}.jsonl").read_text().splitlines()]
        talks = [
            [{"role": "user", "content": row["question"]}, {"role": "assistant", "content": row["answer"]}]
            for row in rows
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in talks))
    folder = run_recipe(
        *ALONE,
        "cluster.cpu_slots_per_node=2",
        "cluster.component_placement={actor: 0-1}",
        "actor.fsdp_config.sharding_strategy=full_shard",
        f"data.train_data_paths=[{tmp_path}/train.jsonl]",
        f"data.val_data_paths=[{tmp_path}/val.jsonl]",
        "data.messages_key=messages",
        *(f"~data.{key}" for key in ("prompt_key", "answer_key", "apply_chat_template")),
    )
    for found, expected in zip(read_metrics(folder), read_metrics(finished), strict=True):
        for name in ("train/loss", "train/lr", "train/tokens", "eval/loss"):
            if name in expected:
                assert found[name] == pytest.approx(expected[name], rel=1e-3), (found["step"], name)
    assert "eval/accuracy" not in read_metrics(folder)[-1]


@pytest.mark.slow
def test_a_reasoning_run_starts_from_what_was_learned(
    finished: Any, run_recipe: Callable[..., Any], questions: Path, tmp_path: Path
) -> None:
    from rlinf.runners.launch import launch_reasoning

    keys = [
        "runner.only_eval=true",
        "~runner.stop_at",
        "data.max_val_prompts=8",
        f"data.train_data_paths=[{questions}/train.jsonl]",
        f"data.val_data_paths=[{questions}/val.jsonl]",
        f"actor.model.model_path={hf_folder(finished)}",
        f"runner.logger.log_path={tmp_path}",
        SHORT,
    ]
    launch_reasoning(validate_cfg(load_recipe("tiny_math_grpo", keys)))
    (record,) = read_metrics(tmp_path / "tiny_math_grpo" / "eval_only" / "initial_1")
    last = read_metrics(finished)[-1]
    for name in ("eval/accuracy", "eval/reward", "eval/response_length"):
        assert record[name] == last[name]
