"""An evaluation has weights or is refused, and its output goes to a folder of its own."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rlinf.errors import CheckpointError
from rlinf.runners.output_paths import reserve_run, run_folder, with_run_paths
from rlinf.runners.readiness import check_ready
from tests.unit.runners.conftest import ReadRecipe, save_checkpoint


def reserved(cfg: Any) -> Any:
    with ExitStack() as stack:
        return reserve_run(cfg, stack)


@pytest.mark.parametrize(
    ("override", "looked_for"),
    [("runner.resume_dir=null", "runner.ckpt_path"), ("runner.resume_dir=auto", "checkpoints")],
)
def test_an_evaluation_without_weights_is_refused_before_anything_is_made(
    recipe: ReadRecipe, tmp_path: Path, override: str, looked_for: str
) -> None:
    cfg = recipe("runner.only_eval=true", override)
    for check in (check_ready, reserved):
        with pytest.raises(CheckpointError) as error:
            check(cfg)
        for part in ("runner.only_eval", "runner.resume_dir", looked_for, "runner.eval_initial_policy=true"):
            assert part in str(error.value)
    assert "null" not in override or str(tmp_path) not in str(error.value)
    assert "auto" not in override or str(run_folder(cfg) / "checkpoints") in str(error.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("keys", "weights"),
    [
        (("runner.eval_initial_policy=true",), "initial_1"),
        (("runner.eval_initial_policy=true", "runner.resume_dir=auto"), "initial_1"),
        (("runner.ckpt_path=/weights.pt",), "weights_1"),
        (("env.eval.data_collection.enabled=true", "env.eval.data_collection.policy=metaworld"), "initial_1"),
    ],
)
def test_weights_may_come_from_elsewhere(recipe: ReadRecipe, keys: tuple[str, ...], weights: str) -> None:
    assert run_folder(reserved(recipe("runner.only_eval=true", *keys))).name == weights


@pytest.mark.parametrize("policy", ["greedy", "sample"])
def test_collecting_with_the_model_needs_weights(recipe: ReadRecipe, policy: str) -> None:
    collection = ("env.eval.data_collection.enabled=true", f"env.eval.data_collection.policy={policy}")
    with pytest.raises(CheckpointError, match="evaluates trained weights"):
        reserved(recipe("runner.only_eval=true", *collection))


def test_a_language_model_brings_its_weights_along(recipe: ReadRecipe) -> None:
    assert run_folder(reserved(recipe("runner.only_eval=true", name="tiny_math_grpo"))).name == "initial_1"


def test_a_training_run_may_find_nothing_to_resume_from(recipe: ReadRecipe) -> None:
    cfg = recipe("runner.resume_dir=auto")
    assert reserved(cfg) == cfg


def test_an_evaluation_works_in_a_folder_of_its_own(recipe: ReadRecipe, tmp_path: Path) -> None:
    run = run_folder(recipe())
    checkpoint = save_checkpoint(run, 7)
    first, second = (reserved(recipe("runner.only_eval=true", "runner.resume_dir=auto")) for _ in range(2))
    assert [run_folder(cfg) for cfg in (first, second)] == [
        run / "eval_only" / "step_00000007_1",
        run / "eval_only" / "step_00000007_2",
    ]
    assert first.runner.resume_dir == str(checkpoint)
    filled = with_run_paths(first)
    assert Path(filled.env.eval.video_cfg.video_base_dir).is_relative_to(run_folder(first))
    sac = recipe("runner.only_eval=true", "runner.eval_initial_policy=true", name="gym_pendulum_sac_mlp")
    replay = Path(with_run_paths(reserved(sac)).algorithm.loss.replay_buffer.folder)
    assert "eval_only" in replay.parts


def test_collected_episodes_go_to_the_experiments_folder(recipe: ReadRecipe) -> None:
    cfg = recipe("runner.only_eval=true", "runner.eval_initial_policy=true", "env.eval.data_collection.enabled=true")
    filled = with_run_paths(reserved(cfg))
    assert filled.env.eval.data_collection.save_dir == str(run_folder(cfg) / "dataset")


def test_the_recipe_of_an_evaluation_is_the_one_that_was_given(recipe: ReadRecipe) -> None:
    cfg = recipe("runner.only_eval=true", "runner.eval_initial_policy=true")
    filled = reserved(cfg)
    logger = dataclasses.replace(filled.runner.logger, experiment_name=cfg.runner.logger.experiment_name)
    assert dataclasses.replace(filled, runner=dataclasses.replace(filled.runner, logger=logger)) == cfg
