"""An evaluation has weights or is refused, and whatever it writes goes into a folder of its own."""

from __future__ import annotations

import dataclasses
import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from rlinf.checkpoint import CheckpointManager
from rlinf.config import load_recipe, validate_cfg
from rlinf.errors import CheckpointError, ConfigError
from rlinf.runners.readiness import check_ready
from rlinf.runners.reservation import reserve_run
from rlinf.runners.run_paths import run_folder, with_dataset_folder, with_run_paths
from rlinf.runners.session import RunSession
from rlinf.telemetry.evaluation import EvalEpisode
from rlinf.telemetry.report import RunFolder, find_runs
from rlinf.telemetry.rundir import claim_run_dir


@pytest.fixture
def recipe(tmp_path):
    """Return a function that reads a recipe whose results go below ``tmp_path``."""

    def read(*overrides, name="gym_cartpole_ppo_mlp"):
        keys = [f"runner.logger.log_path={tmp_path}", "runner.logger.logger_backends=[]", "runner.logger.report=false"]
        return validate_cfg(load_recipe(name, [*keys, *overrides]))

    return read


def save(folder, step):
    """Write a checkpoint of an experiment."""
    manager = CheckpointManager(folder / "checkpoints")
    (manager.begin(step) / "actor").write_text("weights")
    return manager.commit(step, {})


def reserved(cfg):
    with ExitStack() as stack:
        return reserve_run(cfg, stack)


@pytest.mark.parametrize(
    ("override", "looked_for"),
    [("runner.resume_dir=null", "runner.ckpt_path"), ("runner.resume_dir=auto", "checkpoints")],
)
def test_an_evaluation_without_weights_is_refused_before_anything_is_made(recipe, tmp_path, override, looked_for):
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
def test_weights_may_come_from_elsewhere(recipe, keys, weights):
    assert run_folder(reserved(recipe("runner.only_eval=true", *keys))).name == weights


@pytest.mark.parametrize("policy", ["greedy", "sample"])
def test_collecting_with_the_model_needs_weights(recipe, policy):
    collection = ("env.eval.data_collection.enabled=true", f"env.eval.data_collection.policy={policy}")
    with pytest.raises(CheckpointError, match="evaluates trained weights"):
        reserved(recipe("runner.only_eval=true", *collection))


def test_a_language_model_brings_its_weights_along(recipe):
    assert run_folder(reserved(recipe("runner.only_eval=true", name="tiny_math_grpo"))).name == "initial_1"


def test_a_training_run_may_find_nothing_to_resume_from(recipe):
    cfg = recipe("runner.resume_dir=auto")
    assert reserved(cfg) == cfg


def test_an_evaluation_works_in_a_folder_of_its_own(recipe, tmp_path):
    run = run_folder(recipe())
    checkpoint = save(run, 7)
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


def test_collected_episodes_go_to_the_experiments_folder(recipe):
    cfg = recipe("runner.only_eval=true", "runner.eval_initial_policy=true", "env.eval.data_collection.enabled=true")
    filled = with_run_paths(reserved(with_dataset_folder(cfg)))
    assert filled.env.eval.data_collection.save_dir == str(run_folder(cfg) / "dataset")


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "eval_only" not in path.parts}


@pytest.mark.parametrize("overwrite", ["true", "false"])
def test_an_evaluation_beside_a_live_run_changes_nothing_of_it_and_has_a_report_of_its_own(recipe, overwrite):
    cfg = recipe()
    run = run_folder(cfg)
    with ExitStack() as stack:
        reserve_run(cfg, stack)
        with RunSession(cfg) as training:
            training.log(2, training.evaluated(2, [episode(10.0)]))
        save(run, 2)
        before = content(run)
        keys = ("runner.only_eval=true", "runner.resume_dir=auto", f"runner.overwrite={overwrite}")
        with RunSession(recipe(*keys)) as session:
            assert session.resume_step == 2
            session.log(2, session.evaluated(2, [episode(30.0)]))
            session.confirm_resumed()
        assert content(run) == before
    folder = run / "eval_only" / "step_00000002_1"
    assert session.folder == folder
    assert json.loads((folder / "metrics.jsonl").read_text())["eval/return"] == 30.0
    assert [path.name for path in (folder / "evaluations").iterdir()] == ["step_00000002.jsonl"]
    (found,) = find_runs([folder])
    assert found.launches[0]["resumed"] is False
    assert found.config["runner"]["only_eval"] is True
    assert RunFolder.read(run).launches[0]["resumed"] is False
    assert len(RunFolder.read(run).launches) == 1


def episode(value):
    return EvalEpisode(epoch=0, env=0, number=0, metrics={"return": value, "episode_len": value})


def test_an_evaluation_in_an_unused_folder_leaves_it_free_for_training(recipe):
    with RunSession(recipe("runner.only_eval=true", "runner.eval_initial_policy=true")) as session:
        session.log(0, session.evaluated(0, [episode(1.0)]))
    with RunSession(recipe()) as session:
        session.log(1, {"train/loss": 1.0})
    with pytest.raises(ConfigError, match="already holds a run"):
        RunSession(recipe())


def test_a_session_that_never_began_records_nothing(recipe):
    session = RunSession(recipe("runner.logger.report=true"))
    session.write_report()
    assert [path.name for path in session.folder.iterdir()] == ["run.lock"]


def test_a_session_that_fails_as_it_ends_gives_its_folder_back(recipe, monkeypatch):
    cfg = recipe()

    def full(**keys):
        raise OSError("No space left on device")

    session = RunSession(cfg)
    with pytest.raises(OSError, match="No space"), session:
        monkeypatch.setattr(session.logger, "finish", full)
    with claim_run_dir(cfg.runner.logger.log_path, "other", resume=False, overwrite=False):
        pass
    assert not session._exit._exit_callbacks


def test_a_run_without_checkpoints_of_its_own_goes_back_to_what_it_began_from(recipe, tmp_path):
    checkpoint = save(tmp_path / "other", 5)
    cfg = recipe(f"runner.resume_dir={checkpoint}")
    with RunSession(cfg) as session:
        session.log(6, {"train/loss": 1.0})
        assert session.rewind() == checkpoint
        assert session.resume_step == 5
        own = save(session.folder, 7)
        assert session.rewind() == own


def test_the_recipe_of_an_evaluation_is_the_one_that_was_given(recipe):
    cfg = recipe("runner.only_eval=true", "runner.eval_initial_policy=true")
    filled = reserved(cfg)
    logger = dataclasses.replace(filled.runner.logger, experiment_name=cfg.runner.logger.experiment_name)
    assert dataclasses.replace(filled, runner=dataclasses.replace(filled.runner, logger=logger)) == cfg


@pytest.mark.parametrize(
    ("key", "path"),
    [("runner.stop_at={eval/sucess: 1}", "runner.stop_at.eval/sucess"), ("runner.keep_best=eval/sucess", "keep_best")],
)
def test_a_goal_that_the_first_evaluation_does_not_produce_ends_the_run_there(recipe, key, path):
    cfg = recipe("runner.val_check_interval=1", key)
    with RunSession(cfg) as session:
        session.log(1, {"train/loss": 1.0})
        with pytest.raises(ConfigError) as error:
            session.log(2, {"train/loss": 1.0, "eval/success_once": 0.0, "eval/return": 1.0})
    for part in (path, "'eval/sucess'", "Did you mean 'eval/success_once'?", "eval/return"):
        assert part in str(error.value)
    records = (session.folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(record)["step"] for record in records] == [1, 2]


def test_goals_that_are_produced_end_nothing(recipe):
    cfg = recipe("runner.val_check_interval=1", "runner.stop_at={eval/return: 5}", "runner.keep_best=train/loss")
    with RunSession(cfg) as session:
        session.log(0, {"eval/return": 1.0})
        session.log(1, {"train/loss": 1.0})
        assert not session.goal_reached({"eval/return": 1.0})
        # A later evaluation may lack what none of its episodes reports.
        session.log(2, {"eval/reward": 5.0})
