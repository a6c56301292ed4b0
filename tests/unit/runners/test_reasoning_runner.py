"""What a step trains on: how old its answers may be, in which order prompts come, and that a death loses none."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.data.datasets.prompts import PromptSet
from rlinf.errors import DatasetError
from rlinf.runners.reasoning_runner import read_prompt_sets
from rlinf.telemetry.rundir import dump_folder
from tests.unit.runners.text_world import (
    BATCH,
    PROMPTS,
    RESTART,
    SIZE,
    World,
    asked_in_order,
    position,
    run,
    staleness,
    trained_in_order,
)

INFERENCE = ("+inference={}", "cluster.component_placement={actor: 0, rollout: 0, reward: 0, inference: 0}")


@pytest.mark.parametrize(("threshold", "expected"), [("null", 0), (0, 0), (1, 1), (2, 2)])
def test_answers_are_as_stale_as_allowed_and_never_staler(tmp_path: Path, threshold: int | str, expected: int) -> None:
    world = World()
    run(tmp_path, world, f"algorithm.staleness_threshold={threshold}")
    assert [step for step, _ in world.trained] == [1, 2, 3, 4, 5, 6]
    assert trained_in_order(world) == asked_in_order(6 * BATCH)
    assert staleness(world) == [min(step, expected) for step in range(6)]
    # Nothing is asked that no step would train on.
    assert [number for number, _ in world.begun] == list(range(6 * BATCH))


def test_evaluations_ask_the_same_prompts_with_the_weights_of_their_step(tmp_path: Path) -> None:
    world = World()
    runner = run(tmp_path, world, "runner.val_check_interval=3", "algorithm.staleness_threshold=1")
    assert world.evaluated == [(number, step) for step in (0, 3, 6) for number in range(3)]
    assert staleness(world) == [0, 1, 1, 1, 1, 1]
    rows = (runner.logger.folder / "evaluations" / "step_00000003.jsonl").read_text().splitlines()
    assert [json.loads(row)["group"] for row in rows] == [0, 1, 2]


def test_several_sets_are_evaluated_together_and_by_themselves(tmp_path: Path) -> None:
    world = World()
    world.teaches = lambda number: number >= 3
    val = {"easy": PromptSet(PROMPTS[:3], 3, 0), "hard": PromptSet(PROMPTS[3:5], 2, 0)}
    keys = ("runner.only_eval=true", "runner.val_samples=2", "runner.val_pass_at=[2]")
    runner = run(tmp_path, world, *keys, val=val)
    assert [number for number, _ in world.evaluated] == list(range(5))
    metrics = runner.logger.metrics
    # Member 1 of each answer to the hard ones is right.
    assert metrics["eval/accuracy"] == pytest.approx(2 / 10)
    assert (metrics["eval/easy/accuracy"], metrics["eval/hard/accuracy"]) == (0.0, 0.5)
    assert (metrics["eval/easy/pass@2"], metrics["eval/hard/pass@2"]) == (0.0, 1.0)
    assert metrics["eval/pass@2"] == pytest.approx(2 / 5)


def test_speed_and_memory_are_told_for_each_device(tmp_path: Path) -> None:
    spread = "cluster.component_placement={actor: 0, rollout: '0-3:0-1', reward: 0}"
    keys = ("rollout.rollout_backend=vllm", "rollout.tensor_parallel_size=2", "cluster.cpu_slots_per_node=4", spread)
    metrics = run(tmp_path, World(), *keys, "runner.max_epochs=2").logger.metrics
    assert metrics["time/tokens_per_second"] == pytest.approx(BATCH * SIZE * 2 / metrics["time/step"], rel=1e-6)
    per_device = metrics["time/rollout/tokens_per_second_per_device"]  # two engines of two devices
    assert per_device == pytest.approx(metrics["time/tokens_per_second"] / 4)
    assert (metrics["time/actor/peak_memory_gib"], metrics["time/rollout/peak_memory_gib"]) == (2.0, 3.0)


def test_only_an_evaluation_asks_nothing_to_train_on(tmp_path: Path) -> None:
    world = World()
    run(tmp_path, world, "runner.only_eval=true", "data.train_data_paths=[]", train=None)
    assert (world.begun, world.trained) == ([], [])
    assert [number for number, _ in world.evaluated] == [0, 1, 2]


@pytest.mark.parametrize("threshold", ["null", 2])
def test_a_resumed_run_goes_on_behind_what_was_trained_on(tmp_path: Path, threshold: int | str) -> None:
    keys = (f"algorithm.staleness_threshold={threshold}", "runner.save_interval=2")
    runner = run(tmp_path, World(), *keys, "runner.max_epochs=4")
    assert [position(runner, step) for step in (2, 4)] == [2 * BATCH, 4 * BATCH]
    world = World()
    run(tmp_path, world, *keys, "runner.resume_dir=auto")
    assert [step for step, _ in world.trained] == [5, 6]
    assert trained_in_order(world) == asked_in_order(2 * BATCH, first=4 * BATCH)


@pytest.mark.parametrize("threshold", ["null", 2])
@pytest.mark.parametrize(
    "dies",
    [
        ("generate", 10, "rollout"),
        ("score", 10, "reward"),
        ("sync_model_from_actor", 5, "rollout"),
        ("pop_execution_times", 8, "reward"),
        ("recv_responses", 4, "reward"),
        ("compute_advantages", 4, "reward"),
    ],
)
def test_the_death_of_an_engine_or_a_reward_costs_no_answer(
    tmp_path: Path, threshold: int | str, dies: tuple[str, int, str]
) -> None:
    world = World(dies)
    run(tmp_path, world, RESTART, f"algorithm.staleness_threshold={threshold}")
    assert not world.deaths
    assert [step for step, _ in world.trained] == [1, 2, 3, 4, 5, 6]
    assert trained_in_order(world) == asked_in_order(6 * BATCH)
    assert max(staleness(world)) <= (2 if threshold == 2 else 0)


def test_a_step_that_is_made_again_has_the_answers_that_it_had(tmp_path: Path) -> None:
    world = World(("sleep", 5, "rollout"))
    run(tmp_path, world, RESTART, "rollout.enable_offload=true")
    assert not world.deaths
    assert trained_in_order(world) == asked_in_order(6 * BATCH)
    assert [number for number, _ in world.begun] == list(range(6 * BATCH))


@pytest.mark.parametrize("dies", [("compute_advantages", 4, "actor"), ("run_training", 4, "actor")])
def test_an_actor_comes_back_at_its_checkpoint_and_asks_from_there(tmp_path: Path, dies: tuple[str, int, str]) -> None:
    world = World(dies)
    run(tmp_path, world, RESTART, "runner.save_interval=2", "algorithm.staleness_threshold=1")
    steps = [step for step, _ in world.trained]
    assert steps == [1, 2, 3, 3, 4, 5, 6]
    del world.trained[2]
    assert trained_in_order(world) == asked_in_order(6 * BATCH)


def test_without_a_checkpoint_an_actor_begins_anew(tmp_path: Path) -> None:
    world = World(("run_training", 3, "actor"))
    run(tmp_path, world, RESTART, "algorithm.staleness_threshold=1")
    assert [step for step, _ in world.trained] == [1, 2, 1, 2, 3, 4, 5, 6]
    del world.trained[:2]
    assert trained_in_order(world) == asked_in_order(6 * BATCH)


@pytest.mark.parametrize(
    ("interrupted", "steps"),
    [(("compute_advantages", 3), 3), (("run_training", 4), 3), (("sync_model_from_actor", 4), 4)],
)
def test_an_interrupted_run_saves_what_has_been_trained_on(
    tmp_path: Path, interrupted: tuple[str, int], steps: int
) -> None:
    world = World()
    world.interrupt_in = interrupted
    runner = run(tmp_path, world, "algorithm.staleness_threshold=1", start=False)
    with pytest.raises(KeyboardInterrupt):
        runner.run()
    assert len(world.trained) == steps
    assert position(runner, steps) == steps * BATCH


@pytest.mark.parametrize(
    "dies",
    [
        ("compute_logprobs", 10, "inference"),
        ("sync_model_from_actor", 9, "inference"),
        ("generate", 10, "rollout"),
        ("compute_advantages", 4, "actor"),
    ],
)
def test_log_probabilities_come_from_the_inference_group_whatever_dies(
    tmp_path: Path, dies: tuple[str, int, str]
) -> None:
    world = World(dies, has_inference=True)
    runner = run(tmp_path, world, *INFERENCE, RESTART, "runner.save_interval=1", "runner.val_check_interval=3")
    assert not world.deaths
    assert trained_in_order(world) == asked_in_order(6 * BATCH)
    assert staleness(world) == [0] * 6
    for _, groups in world.trained:
        assert all(group.batch.trainer_logprobs.tolist() == [-1.5] * SIZE * 2 for group in groups)
    assert runner.logger.metrics["time/inference/peak_memory_gib"] == 2.0


def test_the_steps_that_are_named_are_dumped(tmp_path: Path) -> None:
    world = World()
    runner = run(tmp_path, world, "runner.dump_steps=[2, 5]")
    calls = [call for call in world.groups["actor"].calls if call.method == "compute_advantages"]
    folders = [str(dump_folder(runner.logger.folder, step)) if step in {2, 5} else None for step in range(1, 7)]
    assert [call.keys["dump"] for call in calls] == folders


def test_the_inference_group_sleeps_while_the_actor_trains(tmp_path: Path) -> None:
    world = World(has_inference=True)
    run(tmp_path, world, *INFERENCE, "inference.enable_offload=true", "runner.max_epochs=2")
    called = [call.method for call in world.groups["inference"].calls if call.method in {"sleep", "compute_logprobs"}]
    assert called == [*["compute_logprobs"] * BATCH, "sleep"] * 2
    assert not [call for call in world.rollout.calls if call.method == "sleep"]


@pytest.mark.parametrize("dies", [None, ("generate", 10, "rollout"), ("sync_model_from_actor", 5, "rollout")])
def test_adapters_travel_alone_but_to_workers_that_are_new(tmp_path: Path, dies: tuple[str, int, str] | None) -> None:
    def sent(world: World) -> list[tuple[Any, Any]]:
        calls = [call for call in world.groups["actor"].calls if call.method == "sync_model_to_rollout"]
        return [(call.keys["version"], call.keys["is_partial"]) for call in calls]

    world = World(*([] if dies is None else [dies]))
    run(tmp_path / "lora", world, RESTART, "actor.model.is_lora=true")
    assert not world.deaths
    expected = [(step, step > 0) for step in range(7)]
    if dies is not None:  # while the third step is made, or while the weights for it are sent
        expected.insert(3, (2, False))
    assert sent(world) == expected
    whole = World()
    run(tmp_path / "whole", whole)
    assert not any(is_partial for _, is_partial in sent(whole))


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Read the prompts of a recipe that has questions to evaluate on, and none to train on."""
    datasets = pytest.importorskip("datasets")
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "1+1": 1}, unk_token="[UNK]"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(tmp_path / "model")
    (tmp_path / "val.jsonl").write_text(json.dumps({"question": "1+1", "answer": "2"}) + "\n")

    def read(*overrides: str) -> Any:
        keys = (
            f"actor.model.model_path={tmp_path}/model",
            f"data.val_data_paths=[{tmp_path}/val.jsonl]",
            "data.apply_chat_template=false",
        )
        cfg = validate_cfg(load_recipe("tiny_math_grpo", [*keys, *overrides]))
        _, sets = read_prompt_sets(cfg, ExitStack())  # type: ignore[arg-type]
        return sets["train_prompts"], sets["val_prompts"]

    return read


@pytest.mark.parametrize("paths", ["[]", "[absent.jsonl]"])
def test_a_run_that_only_evaluates_reads_nothing_to_train_on(read: Callable[..., Any], paths: str) -> None:
    train, val = read("runner.only_eval=true", f"data.train_data_paths={paths}")
    assert train is None
    assert [prompt.token_ids for prompt in val["val"].prompts] == [(1,)]


def test_a_run_that_trains_reads_what_it_trains_on(read: Callable[..., Any], tmp_path: Path) -> None:
    train, _ = read(f"data.train_data_paths=[{tmp_path}/val.jsonl,{tmp_path}/val.jsonl]")
    assert [prompt.text for prompt in train.prompts] == ["1+1", "1+1"]
    with pytest.raises(DatasetError, match="no such file"):
        read("data.train_data_paths=[absent.jsonl]")


def test_evaluations_read_their_own_columns(read: Callable[..., Any]) -> None:
    with pytest.raises(DatasetError, match=r"^data\.val_prompt_key: there is no 'problem' in row 0 of "):
        read("runner.only_eval=true", "data.val_prompt_key=problem")
