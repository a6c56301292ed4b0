"""A run on prompts with images: engine and trainer agree, images reach both, and the run goes on from a checkpoint."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest

from rlinf.config import load_recipe, validate_cfg
from tests.e2e.conftest import REPO, read_metrics
from tests.unit.models.tiny_vision_models import make_tiny_vision_model, picture

pytestmark = pytest.mark.timeout(400)
RECIPE = "tiny_counting_grpo"
TINY = (
    "runner.max_epochs=2",
    "runner.val_check_interval=2",
    "~runner.stop_at",
    "data.rollout_batch_size=8",
    "data.max_val_prompts=8",
    "actor.global_batch_size=16",
    "algorithm.recompute_logprobs=true",
)


def keys_of(folder: Path) -> list[str]:
    """Return what a short run on the rows and the model of a folder needs."""
    rows = f"[{folder}/rows.parquet]"
    paths = (f"data.train_data_paths={rows}", f"data.val_data_paths={rows}", f"actor.model.model_path={folder}/model")
    return [*TINY, *paths]


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("counting")
    make_tiny_vision_model(folder / "model")
    chance = random.Random(0)
    counts = [chance.randint(1, 6) for _ in range(16)]
    rows = {
        "image": [picture(count, seed=number) for number, count in enumerate(counts)],
        "answer": [str(count) for count in counts],
        "question": ["count"] * len(counts),
    }
    datasets.Dataset.from_dict(rows).to_parquet(str(folder / "rows.parquet"))
    return folder


@pytest.fixture(scope="module")
def run_recipe(one_node: None, counting: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    from rlinf.runners.launch import launch_reasoning

    def run(*overrides: str) -> list[dict[str, Any]]:
        log_path = tmp_path_factory.mktemp("run")
        keys = [*keys_of(counting), f"runner.logger.log_path={log_path}"]
        launch_reasoning(validate_cfg(load_recipe(RECIPE, [*keys, *overrides])))
        return list(read_metrics(log_path / RECIPE))

    return run


def test_trainer_and_engine_agree_on_images_before_and_after_weights_are_replaced(
    run_recipe: Callable[..., Any],
) -> None:
    records = [record for record in run_recipe() if record["step"] > 0]
    assert len(records) == 2
    for record in records:
        for name in ("mismatch_k1", "mismatch_chi2", "mismatch_max_probability_difference"):
            assert abs(record[f"rollout/{name}"]) < 1e-4, name


def test_episodes_that_are_played_see_what_engines_do_by_themselves(
    run_recipe: Callable[..., Any], start_run: Callable[..., Any], counting: Path, one_node: str, tmp_path: Path
) -> None:
    plain = run_recipe("actor.model.freeze_vision=true", "+agent={workflow: vision_rlvr}")
    run = start_run(
        RECIPE,
        *keys_of(counting),
        "actor.model.freeze_vision=true",
        "+agent={workflow: played_rlvr}",
        f"runner.logger.log_path={tmp_path}",
        env={"RLINF_EXT_MODULE": "tests.e2e.agent_workflows", "PYTHONPATH": str(REPO), "RAY_ADDRESS": one_node},
        entry=REPO / "examples" / "reasoning" / "main_grpo.py",
    )
    assert run.wait() == 0, run.output[-4000:]
    played = read_metrics(tmp_path / RECIPE)
    assert played[-1]["rollout/turns"] == 1
    for name in ("rollout/reward", "train/grad_norm", "eval/accuracy"):
        assert plain[-1][name] == pytest.approx(played[-1][name], abs=1e-5), name


def test_fine_tuning_learns_solved_images_and_evaluates_with_them(
    one_node: None, counting: Path, tmp_path: Path
) -> None:
    from rlinf.runners.launch import launch_sft

    keys = [
        *("runner.max_steps=3", "runner.val_check_interval=3", "~runner.stop_at", "algorithm.update_epoch=4"),
        *("actor.global_batch_size=16", "actor.optim.lr_warmup_steps=0", f"actor.model.model_path={counting}/model"),
        *(f"data.{part}_data_paths=[{counting}/rows.parquet]" for part in ("train", "val")),
        f"runner.logger.log_path={tmp_path}",
    ]
    launch_sft(validate_cfg(load_recipe("tiny_counting_sft", keys)))
    records = list(read_metrics(tmp_path / "tiny_counting_sft"))
    losses = [record["train/loss"] for record in records if "train/loss" in record]
    assert losses[-1] < 0.5 * losses[0]
    first, last = (record for record in records if "eval/loss" in record)
    assert last["eval/loss"] < 0.5 * first["eval/loss"]
    assert last["eval/token_accuracy"] > first["eval/token_accuracy"]
    assert {"eval/accuracy", "eval/response_length"} <= last.keys()


def test_a_policy_learns_from_what_a_model_says_of_its_images(train: Callable[..., Path], counting: Path) -> None:
    path = train(
        "pixel_reach_ppo_cnn",
        *("runner.max_epochs=2", "runner.val_check_interval=-1", "~runner.stop_at", "algorithm.update_epoch=1"),
        *("env.train.total_num_envs=4", "env.train.max_steps_per_rollout_epoch=8"),
        *("actor.global_batch_size=32", "actor.micro_batch_size=32", "++cluster.component_placement.reward=0"),
        "+reward.rewards.env={reward_type: env, weight: 0.0}",
        "+reward.rewards.judge={reward_type: vlm, question: 'reward?', invalid_reward: 0.5, interval_reward: -0.5, "
        f"max_new_tokens: 2, input_interval: 4, model_path: {counting}/model}}",
    )
    for record in read_metrics(path):
        # Each fourth step of an episode is asked about, and no reply of a random model is a number; one that ends early
        # begins to count anew.
        questions = 32 * (record["env/reward/judge"] + 0.5)
        assert questions == pytest.approx(round(questions))
        assert 4 <= questions <= 8
        assert record["env/reward/env"] != record["env/reward/judge"]
