"""What a run records: metrics, evaluations and goals; an evaluation beside a live run changes nothing of it."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rlinf.errors import ConfigError
from rlinf.runners.output_paths import reserve_run, run_folder
from rlinf.runners.run_logger import RunLogger
from rlinf.telemetry.evaluation import EvalEpisode
from rlinf.telemetry.report import RunFolder, find_runs
from rlinf.telemetry.rundir import claim_run_dir
from tests.unit.runners.conftest import ReadRecipe, save_checkpoint


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "eval_only" not in path.parts}


@pytest.mark.parametrize("overwrite", ["true", "false"])
def test_an_evaluation_beside_a_live_run_changes_nothing_of_it_and_has_a_report_of_its_own(
    recipe: ReadRecipe, overwrite: str
) -> None:
    cfg = recipe()
    run = run_folder(cfg)
    with ExitStack() as stack:
        reserve_run(cfg, stack)
        with RunLogger(cfg) as training:
            training.log(2, training.log_evaluation(2, [episode(10.0)]))
        save_checkpoint(run, 2)
        before = content(run)
        keys = ("runner.only_eval=true", "runner.resume_dir=auto", f"runner.overwrite={overwrite}")
        with RunLogger(recipe(*keys)) as logger:
            assert logger.resume_step == 2
            logger.log(2, logger.log_evaluation(2, [episode(30.0)]))
            logger.confirm_resumed()
        assert content(run) == before
    folder = run / "eval_only" / "step_00000002_1"
    assert logger.folder == folder
    assert json.loads((folder / "metrics.jsonl").read_text())["eval/return"] == 30.0
    assert [path.name for path in (folder / "evaluations").iterdir()] == ["step_00000002.jsonl"]
    (found,) = find_runs([folder])
    assert found.launches[0]["resumed"] is False
    assert found.config["runner"]["only_eval"] is True
    assert RunFolder.read(run).launches[0]["resumed"] is False
    assert len(RunFolder.read(run).launches) == 1


def episode(value: float) -> EvalEpisode:
    return EvalEpisode(epoch=0, env=0, number=0, metrics={"return": value, "episode_len": value})


def test_an_evaluation_in_an_unused_folder_leaves_it_free_for_training(recipe: ReadRecipe) -> None:
    with RunLogger(recipe("runner.only_eval=true", "runner.eval_initial_policy=true")) as logger:
        logger.log(0, logger.log_evaluation(0, [episode(1.0)]))
    with RunLogger(recipe()) as logger:
        logger.log(1, {"train/loss": 1.0})
    with pytest.raises(ConfigError, match="already holds a run"):
        RunLogger(recipe())


def test_a_run_logger_that_never_began_records_nothing(recipe: ReadRecipe) -> None:
    logger = RunLogger(recipe("runner.logger.report=true"))
    logger.write_report()
    assert [path.name for path in logger.folder.iterdir()] == ["run.lock"]


def test_a_run_logger_that_fails_as_it_ends_gives_its_folder_back(
    recipe: ReadRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    cfg = recipe()

    def full(**keys: Any) -> None:
        raise OSError("No space left on device")

    logger = RunLogger(cfg)
    with pytest.raises(OSError, match="No space"), logger:
        monkeypatch.setattr(logger.metric_logger, "finish", full)
    with claim_run_dir(cfg.runner.logger.log_path, "other", resume=False, overwrite=False):
        pass
    assert not logger._exit._exit_callbacks


def test_a_run_without_checkpoints_of_its_own_goes_back_to_what_it_began_from(
    recipe: ReadRecipe, tmp_path: Path
) -> None:
    checkpoint = save_checkpoint(tmp_path / "other", 5)
    cfg = recipe(f"runner.resume_dir={checkpoint}")
    with RunLogger(cfg) as logger:
        logger.log(6, {"train/loss": 1.0})
        assert logger.rewind() == checkpoint
        assert logger.resume_step == 5
        own = save_checkpoint(logger.folder, 7)
        assert logger.rewind() == own


@pytest.mark.parametrize(
    ("key", "path"),
    [("runner.stop_at={eval/sucess: 1}", "runner.stop_at.eval/sucess"), ("runner.keep_best=eval/sucess", "keep_best")],
)
def test_a_goal_that_the_first_evaluation_does_not_produce_ends_the_run_there(
    recipe: ReadRecipe, key: str, path: str
) -> None:
    cfg = recipe("runner.val_check_interval=1", key)
    with RunLogger(cfg) as logger:
        logger.log(1, {"train/loss": 1.0})
        with pytest.raises(ConfigError) as error:
            logger.log(2, {"train/loss": 1.0, "eval/success_once": 0.0, "eval/return": 1.0})
    for part in (path, "'eval/sucess'", "Did you mean 'eval/success_once'?", "eval/return"):
        assert part in str(error.value)
    records = (logger.folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(record)["step"] for record in records] == [1, 2]


def test_goals_that_are_produced_end_nothing(recipe: ReadRecipe) -> None:
    cfg = recipe("runner.val_check_interval=1", "runner.stop_at={eval/return: 5}", "runner.keep_best=train/loss")
    with RunLogger(cfg) as logger:
        logger.log(0, {"eval/return": 1.0})
        logger.log(1, {"train/loss": 1.0})
        assert not logger.goal_reached({"eval/return": 1.0})
        # A later evaluation may lack what none of its episodes reports.
        logger.log(2, {"eval/reward": 5.0})
