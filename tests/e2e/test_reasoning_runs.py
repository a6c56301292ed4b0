"""The loop of language models as a whole: what a run leaves behind, repeatability, resume, staleness and deaths."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rlinf.config import load_recipe, validate_cfg
from rlinf.errors import PlacementError
from tests.e2e.conftest import read_metrics

pytest.importorskip("transformers")
pytest.importorskip("datasets")
pytest.importorskip("math_verify")

pytestmark = pytest.mark.timeout(400)
RECIPE = "tiny_math_grpo"
BATCH, SIZE = 8, 4
TINY = (
    "runner.max_epochs=3",
    "runner.val_check_interval=3",
    "~runner.stop_at",
    f"data.rollout_batch_size={BATCH}",
    "data.max_val_prompts=8",
    f"algorithm.group_size={SIZE}",
    "actor.global_batch_size=16",
    "+reward.rewards.short={reward_type: function, function: 'tests.e2e.reasoning_rewards:short'}",
)
RANKS = (
    "cluster.cpu_slots_per_node=2",
    "cluster.component_placement={actor: 0-1, rollout: 0-1, reward: 0}",
)


@pytest.fixture(scope="module")
def run_recipe(one_node: None, questions: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    from rlinf.runners.launch import launch_reasoning

    def run(*overrides: str, log_path: Path | None = None) -> Path:
        log_path = log_path or tmp_path_factory.mktemp("run")
        keys = [
            *TINY,
            f"data.train_data_paths=[{questions}/train.jsonl]",
            f"data.val_data_paths=[{questions}/val.jsonl]",
            f"actor.model.model_path={questions}/model",
            f"runner.logger.log_path={log_path}",
        ]
        launch_reasoning(validate_cfg(load_recipe(RECIPE, [*keys, *overrides])))
        return log_path / RECIPE

    return run


@pytest.fixture(scope="module")
def finished(run_recipe: Callable[..., Any]) -> Any:
    return run_recipe("runner.save_interval=2")


def samples(folder: Path, step: int) -> list[Any]:
    lines = (folder / "samples" / f"step_{step:08d}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def steps_of(records: list[dict[Any, Any]]) -> list[dict[Any, Any]]:
    return [record for record in records if record["step"] > 0]


def check_groups(folder: Path, steps: int = 3) -> None:
    """Every step has all its groups whole, and no group comes twice."""
    seen = []
    for step in range(1, steps + 1):
        rows = samples(folder, step)
        assert [row["member"] for row in rows] == list(range(SIZE)) * BATCH
        seen += [row["group"] for row in rows[::SIZE]]
    assert seen == list(range(steps * BATCH))


def test_trainer_and_engine_agree_before_and_after_weights_are_replaced(finished: Any) -> None:
    records = steps_of(read_metrics(finished))
    assert [record["step"] for record in records] == [1, 2, 3]
    for record in records:
        assert record["rollout/mismatch_max_probability_difference"] < 1e-4
        assert record["rollout/staleness_max"] == 0
        assert record["train/grad_norm"] > 0


def test_a_run_leaves_samples_evaluations_and_a_checkpoint(finished: Any) -> None:
    check_groups(finished)
    assert samples(finished, 2)[0]["versions"] == [1, 1]
    for row in samples(finished, 1):
        assert row["reward"] == pytest.approx(sum(row["reward_terms"].values()))
        assert row["reward_terms"]["short"] == pytest.approx(1 - len(row["answer"]) / 10)
    assert [len(path.read_text().splitlines()) for path in sorted((finished / "evaluations").iterdir())] == [8, 8]
    position = json.loads((finished / "checkpoints/global_step_3/data/prompts.json").read_text())
    assert position == {"position": 3 * BATCH}
    assert {"eval/accuracy", "eval/response_length"} <= set(read_metrics(finished)[0])
    hf = finished / "checkpoints/global_step_3/hf"
    assert {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"} <= set(os.listdir(hf))


def test_a_model_of_the_reward_group_judges_the_answers(run_recipe: Callable[..., Any], questions: Path) -> None:
    judge = (
        f"+reward.rewards.judge={{reward_type: judge, model_path: '{questions}/model', question: '{{response}}', "
        "replies: {}, invalid_reward: 0.25, max_new_tokens: 4, max_context_tokens: 64}"
    )
    folder = run_recipe("runner.max_epochs=1", "runner.val_check_interval=-1", judge)
    rows = samples(folder, 1)
    by_answer: dict[str, set[float]] = {}
    for row in rows:
        by_answer.setdefault(row["answer"], set()).add(row["reward_terms"]["judge"])
    assert all(len(rewards) == 1 for rewards in by_answer.values()), "the most likely reply is always the same"
    assert any(row["reward_terms"]["judge"] != 0.25 for row in rows), "some replies hold a number"


def test_a_resumed_run_equals_an_undisturbed_one(finished: Any, run_recipe: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / RECIPE
    shutil.copytree(finished, folder)
    shutil.rmtree(folder / "checkpoints/global_step_3")
    run_recipe("runner.save_interval=2", "runner.resume_dir=auto", log_path=tmp_path)
    assert samples(folder, 3) == samples(finished, 3)
    for found, expected in zip(read_metrics(folder), read_metrics(finished), strict=True):
        assert set(found) == set(expected)
        for name, value in expected.items():
            # Which answers an engine computes together is a matter of time, and changes the last digit of what it
            # reports of them; training has its own numbers.
            is_of_engine = name.startswith("rollout/mismatch_")
            assert found[name] == (pytest.approx(value, abs=1e-5) if is_of_engine else value), name


@pytest.mark.parametrize("threshold", ["null", 1])
def test_groups_that_teach_nothing_are_replaced(run_recipe: Callable[..., Any], threshold: int | str) -> None:
    folder = run_recipe(
        "reward.rewards.short.function=tests.e2e.reasoning_rewards:short_if_even",
        "algorithm.max_num_gen_batches=4",
        "data.gen_batch_size=12",
        f"algorithm.staleness_threshold={threshold}",
        "runner.val_samples=4",
        "runner.val_pass_at=[1,2]",
    )
    seen = []
    for step in (1, 2, 3):
        rows = samples(folder, step)
        groups = [rows[begin : begin + SIZE] for begin in range(0, len(rows), SIZE)]
        assert len(groups) == BATCH
        for group in groups:
            assert len({row["group"] for row in group}) == 1
            assert len({row["reward"] for row in group}) > 1
            assert "abort" not in {row["finish_reason"] for row in group}
        seen += [group[0]["group"] for group in groups]
    assert seen == sorted(set(seen))
    records = read_metrics(folder)
    used = [int(record["rollout/prompts_asked"]) for record in steps_of(records)]
    assert sum(used) > 3 * BATCH
    position = json.loads((folder / "checkpoints/global_step_3/data/prompts.json").read_text())["position"]
    # The last prompt that was used up is one whose answers were trained on.
    assert position == sum(used) == seen[-1] + 1
    for record in steps_of(records):
        assert record["rollout/missing_groups"] == 0
        assert record["rollout/staleness_max"] <= (0 if threshold == "null" else 1)
        if threshold == "null":
            assert record["rollout/mismatch_max_probability_difference"] < 1e-4
    assert {"eval/pass@1", "eval/pass@2", "eval/avg@4"} <= set(records[0])


@pytest.mark.slow
def test_answers_ahead_of_training_are_no_staler_than_allowed(run_recipe: Callable[..., Any]) -> None:
    folder = run_recipe("algorithm.staleness_threshold=2", "runner.max_epochs=5", "runner.val_check_interval=-1")
    check_groups(folder, steps=5)
    stale = [record["rollout/staleness_max"] for record in steps_of(read_metrics(folder))]
    assert len(stale) == 5
    assert 1 <= max(stale) <= 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "weights",
    ["runner.ckpt_path={}/checkpoints/global_step_3", "actor.model.model_path={}/checkpoints/global_step_3/hf"],
)
def test_a_run_that_only_evaluates_trains_nothing(finished: Any, run_recipe: Callable[..., Any], weights: str) -> None:
    run = run_recipe("runner.only_eval=true", "data.train_data_paths=[]", weights.format(finished))
    (folder,) = (run / "eval_only").iterdir()
    (record,) = read_metrics(folder)
    expected = {name: value for name, value in read_metrics(finished)[-1].items() if name.startswith("eval/")}
    assert record == {"step": 0, **expected}
    assert not (folder / "samples").exists()
    assert not (folder / "checkpoints").exists() or not list((folder / "checkpoints").iterdir())


def test_a_recipe_for_gpus_says_what_is_missing_here(run_recipe: Callable[..., Any]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there are GPUs")
    gpu = "cluster.node_groups=[{label: gpu, node_ranks: 0, accelerators_per_node: 8}]"
    with pytest.raises(PlacementError, match="accelerators_per_node is 8, but"):
        run_recipe(
            gpu, "cluster.component_placement={actor: 0-3, rollout: '4-7', reward: {node_group: node, placement: 0}}"
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "engine", [pytest.param("vllm", marks=pytest.mark.vllm), pytest.param("sglang", marks=pytest.mark.sglang)]
)
def test_a_serving_engine_generates_with_the_actors_weights_and_ends_with_the_run(
    run_recipe: Callable[..., Any], engine: str
) -> None:
    folder = run_recipe(
        f"rollout.rollout_backend={engine}", "rollout.validate_weight=true", f"rollout.cpu_cache_bytes={64 << 20}"
    )
    check_groups(folder)
    records = read_metrics(folder)
    assert [record["step"] for record in records] == [0, 1, 2, 3]
    for record in steps_of(records):
        assert record["rollout/mismatch_max_probability_difference"] < 1e-4
        assert record["rollout/staleness_max"] == 0
        assert record["train/grad_norm"] > 0
    assert [samples(folder, step)[0]["versions"] for step in (1, 2, 3)] == [[0, 0], [1, 1], [2, 2]]
    log = (folder / "worker_logs" / "RolloutGroup_0.log").read_text()
    (process,) = re.findall(r"Ready: process (\d+)", log)
    # The call to end it returns before the system has taken the process down.
    deadline = time.monotonic() + 60
    while Path(f"/proc/{process}").exists():
        assert time.monotonic() < deadline, "the engine's process outlives the run"
        time.sleep(0.1)


def test_two_actors_and_two_engines_make_the_steps_of_one(finished: Any, run_recipe: Callable[..., Any]) -> None:
    folder = run_recipe(*RANKS, "actor.fsdp_config.sharding_strategy=full_shard", "rollout.validate_weight=true")
    check_groups(folder)
    records, expected = read_metrics(folder), read_metrics(finished)
    assert [record["step"] for record in records] == [0, 1, 2, 3]
    for record in steps_of(records):
        assert record["rollout/mismatch_max_probability_difference"] < 1e-4
    # The first answers are drawn with equal weights, whichever engine draws them.
    assert [row["answer"] for row in samples(folder, 1)] == [row["answer"] for row in samples(finished, 1)]
    assert records[1]["train/grad_norm"] == pytest.approx(expected[1]["train/grad_norm"], rel=1e-3)


def test_an_inference_group_recomputes_what_the_actor_would(finished: Any, run_recipe: Callable[..., Any]) -> None:
    folder = run_recipe(
        "+inference={max_tokens_per_mbs: 64}",
        "cluster.cpu_slots_per_node=2",
        "cluster.component_placement={actor: 0, rollout: 0, reward: 0, inference: 0-1}",
    )
    check_groups(folder)
    for step in (1, 2, 3):
        assert samples(folder, step) == samples(finished, step)
    for found, expected in zip(read_metrics(folder), read_metrics(finished), strict=True):
        assert set(found) == set(expected)
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, rel=1e-5, abs=1e-5), name
    for line in (folder / "metrics.jsonl").read_text().splitlines()[1:]:
        assert json.loads(line)["time/inference/evaluate"] > 0
        assert json.loads(line)["time/inference/peak_memory_gib"] > 0


def test_inference_ranks_that_share_a_model_compute_what_the_actor_would(run_recipe: Callable[..., Any]) -> None:
    folder = run_recipe(
        "+inference={shard_model: true}",
        "actor.fsdp_config.sharding_strategy=full_shard",
        "cluster.component_placement={actor: 0, rollout: 0, reward: 0, inference: '0:0-1'}",
    )
    check_groups(folder)
    for record in steps_of(read_metrics(folder)):
        assert record["rollout/mismatch_max_probability_difference"] < 1e-4


@pytest.mark.parametrize(
    "size", ["tensor_model_parallel_size", pytest.param("pipeline_model_parallel_size", marks=pytest.mark.slow)]
)
def test_inference_ranks_are_spread_as_the_actor_is(run_recipe: Callable[..., Any], size: str) -> None:
    pytest.importorskip("megatron.core")
    folder = run_recipe(
        "runner.max_epochs=2",
        "runner.val_check_interval=-1",
        "actor.training_backend=megatron",
        "~actor.fsdp_config",
        f"actor.megatron.{size}=2",
        "+inference={shard_model: true}",
        "cluster.cpu_slots_per_node=2",
        "cluster.component_placement={actor: 0-1, rollout: 0, reward: 0, inference: 0-1}",
    )
    check_groups(folder, steps=2)
    records = steps_of(read_metrics(folder))
    assert [record["step"] for record in records] == [1, 2]
    for record in records:
        assert record["rollout/mismatch_max_probability_difference"] < 1e-4
        assert record["train/grad_norm"] > 1e-3
    for line in (folder / "metrics.jsonl").read_text().splitlines()[1:]:
        assert json.loads(line)["time/inference/evaluate"] > 0


def test_adapters_alone_keep_engine_and_inference_group_at_the_trainers_weights(run_recipe: Callable[..., Any]) -> None:
    pytest.importorskip("peft")
    folder = run_recipe(
        "actor.model.is_lora=true",
        "actor.model.lora_rank=8",
        "actor.optim.lr=0.01",
        "rollout.validate_weight=true",
        "+inference={}",
        "cluster.component_placement={actor: 0, rollout: 0, reward: 0, inference: 0}",
    )
    check_groups(folder)
    for record in steps_of(read_metrics(folder)):
        assert record["rollout/mismatch_max_probability_difference"] < 1e-4
        assert record["train/grad_norm"] > 0
        assert record["train/actor_approx_kl"] != 0
    (checkpoint,) = (folder / "checkpoints").glob("global_step_*")
    assert json.loads((checkpoint / "adapter" / "adapter_config.json").read_text())["r"] == 8


def test_an_engine_that_is_killed_while_it_generates_costs_no_answer(
    run_recipe: Callable[..., Any], questions: Path, tmp_path: Path
) -> None:
    folder = tmp_path / RECIPE
    rows = [json.loads(line) for line in (questions / "train.jsonl").read_text().splitlines()]
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps({**row, "folder": str(folder)}) + "\n" for row in rows))
    run_recipe(
        f"data.train_data_paths=[{path}]",
        "data.metadata_keys=[folder]",
        "data.val_data_paths=[]",
        "reward.rewards.short.function=tests.e2e.reasoning_rewards:kill_engine",
        "rollout.max_running_requests=4",
        "runner.val_check_interval=-1",
        "runner.max_restarts=1",
        log_path=tmp_path,
    )
    assert (folder / "worker_logs" / "RolloutGroup_0.log").read_text().count("Ready: process") == 2
    check_groups(folder)
    records = read_metrics(folder)
    assert [record["step"] for record in records] == [1, 2, 3]
    for record in records:
        assert record["rollout/mismatch_max_probability_difference"] < 1e-4
        assert record["rollout/staleness_max"] == 0
