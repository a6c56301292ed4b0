"""What an evaluation of a suite is summed up to, and from which of a recipe's evaluations."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from evaluations import summarize
from rlinf.config import load_recipe, to_dict, validate_cfg
from rlinf.config.schema.root import EmbodiedConfig
from rlinf.errors import ConfigError
from rlinf.runners.evaluation_record import evaluation_record
from rlinf.telemetry.evaluation import EvalEpisode, write_episodes
from rlinf.telemetry.rundir import record_launch

ROOT = Path(__file__).parents[3] / "evaluations"
SUITES = [file for file in sorted(ROOT.glob("*/*_eval.yaml")) if file.parent.name != "calvin"]
VERSIONS = {"mujoco": "3.3.0", "assets": "stand-ins (22)"}


def recipe(name: str = "libero_object_eval", *overrides: str) -> EmbodiedConfig:
    (file,) = ROOT.glob(f"*/{name}.yaml")
    cfg = validate_cfg(load_recipe(str(file), ["actor.model.model_path=somewhere", *overrides]))
    assert isinstance(cfg, EmbodiedConfig)
    return cfg


def episodes(cfg: EmbodiedConfig) -> list[EvalEpisode]:
    """Return an evaluation in which the even environments succeed."""
    env = cfg.env.eval
    assert env is not None
    is_fixed = env.use_fixed_reset_state_ids
    return [
        EvalEpisode(
            epoch,
            row,
            0,
            f"task {row % 10}",
            {"success_once": float(row % 2 == 0), "return": 0.0},
            start=row if is_fixed else epoch * env.total_num_envs + row,
        )
        for epoch in range(env.rollout_epoch)
        for row in range(env.total_num_envs)
    ]


def summary(cfg: EmbodiedConfig) -> dict[str, Any]:
    return summarize.summarize(cfg, episodes(cfg), evaluation_record(cfg, VERSIONS, None))


@pytest.mark.parametrize("file", SUITES, ids=lambda file: file.stem)
def test_every_suite_plays_every_start_state_once(file: Path) -> None:
    cfg = recipe(file.stem)
    starts = summary(cfg)["starts"]
    assert cfg.env.eval is not None
    assert starts["played"] == starts["distinct"] == starts["of"] == cfg.env.eval.num_start_states


@pytest.mark.parametrize(
    ("name", "count"),
    [
        *(("libero_spatial_eval", 500), ("libero_90_eval", 4500), ("metaworld_mt10_eval", 500)),
        *(("metaworld_mt50_eval", 2500), ("metaworld_ml45_train_eval", 2250), ("metaworld_ml45_test_eval", 250)),
        ("langpick_eval", 64),
    ],
)
def test_suites_play_as_many_start_states_as_are_published(name: str, count: int) -> None:
    cfg = recipe(name).env.eval
    assert cfg is not None
    assert cfg.num_start_states == count


def test_success_is_counted_by_task_with_intervals() -> None:
    result = summary(recipe())
    assert result["all"]["success"] == 0.5
    assert result["tasks"]["task 0"] == {"episodes": 50, "successes": 50, "success": 1.0, "interval": [0.9287, 1.0]}
    assert result["tasks"]["task 1"]["success"] == 0.0
    assert result["versions"].items() >= VERSIONS.items()


def test_a_start_state_played_twice_is_noticed() -> None:
    starts = summary(
        recipe("libero_object_eval", "env.eval.use_fixed_reset_state_ids=true", "env.eval.num_start_states=null")
    )["starts"]
    assert (starts["played"], starts["distinct"], starts["of"]) == (500, 20, 500)


def test_start_states_are_the_same_however_the_work_is_cut() -> None:
    def starts(*overrides: str) -> dict[str, Any]:
        return dict(summary(recipe("libero_object_eval", *overrides))["starts"])

    whole = starts()
    assert starts("env.eval.total_num_envs=10", "env.eval.rollout_epoch=50") == whole
    # Others of the same number are others.
    part = [f"env.eval.{key}" for key in ("rollout_epoch=1", "num_start_states=20")]
    first, second = (starts(*part, f"env.eval.trial_id_filter=[{trials}]") for trials in ("0,1", "2,3"))
    assert first["distinct"] == second["distinct"] == 20
    assert first["sha256"] != second["sha256"]


@pytest.mark.parametrize(
    ("wrong", "told"), [({"task": ""}, "which task they are of"), ({"start": None}, "which start states")]
)
def test_episodes_that_do_not_say_enough_are_refused(wrong: dict[str, Any], told: str) -> None:
    episode = EvalEpisode(**{"epoch": 0, "env": 0, "number": 0, "task": "lift", "start": 0, **wrong})
    with pytest.raises(ConfigError, match=told):
        summarize.summarize(recipe(), [episode], {})


def save_evaluation(log_path: Path, cfg: EmbodiedConfig, folder: str, *, age: int) -> Path:
    """Write what the run of an evaluation leaves behind."""
    run = log_path / folder
    run.mkdir(parents=True)
    logger = dataclasses.replace(cfg.runner.logger, experiment_name=folder)
    config = dataclasses.replace(cfg, runner=dataclasses.replace(cfg.runner, logger=logger))
    record_launch(run, folder, config=to_dict(config))
    finished = (datetime.now(timezone.utc) - timedelta(seconds=age)).isoformat()
    record = {**evaluation_record(cfg, VERSIONS, None), "finished_at": finished}
    write_episodes(run / "evaluations/step_00000000.jsonl", episodes(cfg))
    (run / "evaluations/step_00000000.json").write_text(json.dumps(record), encoding="utf-8")
    return run


def test_the_evaluation_that_was_finished_last_is_written_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = [f"runner.logger.log_path={tmp_path}", "actor.model.model_path=somewhere"]
    file = str(ROOT / "libero" / "libero_goal_eval.yaml")
    with pytest.raises(FileNotFoundError, match="holds no evaluation"):
        summarize.main([file, *overrides])
    cfg = recipe("libero_goal_eval", *overrides)
    newest = save_evaluation(tmp_path, cfg, "libero_goal_eval/eval_only/initial_1", age=0)
    # Written last, and finished before.
    older = save_evaluation(tmp_path, cfg, "libero_goal_eval/eval_only/initial_2", age=10)
    assert summarize.main([file, *overrides]) == 0
    assert "Success 0.500 [0.456, 0.544] over 10 tasks" in capsys.readouterr().out
    saved = json.loads((newest / summarize.SUMMARY_FILE).read_text(encoding="utf-8"))
    assert saved["starts"]["distinct"] == 500
    assert saved["env"]["max_episode_steps"] == 300
    assert not (older / summarize.SUMMARY_FILE).exists()
    assert summarize.main([str(older)]) == 0
    assert (older / summarize.SUMMARY_FILE).exists()


def test_what_was_evaluated_is_what_the_run_recorded_and_not_what_the_recipe_says_now(tmp_path: Path) -> None:
    overrides = [f"runner.logger.log_path={tmp_path}", "actor.model.model_path=somewhere"]
    cfg = recipe("libero_goal_eval", *overrides, "env.eval.image_size=64")
    run = save_evaluation(tmp_path, cfg, "libero_goal_eval/eval_only/initial_1", age=0)
    summarize.main([str(ROOT / "libero" / "libero_goal_eval.yaml"), *overrides])
    assert json.loads((run / summarize.SUMMARY_FILE).read_text(encoding="utf-8"))["env"]["image_size"] == 64
