"""A run that judges frames asks its actor alone: to train, to evaluate, and at the end to label."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from rlinf.config import validate_cfg
from rlinf.config.schema.root import ValueConfig
from rlinf.runners.value_runner import ValueRunner, read_nothing, start_workers
from tests.unit.config.checks.test_value_checks import RECAP, changed
from tests.unit.runners.reply_groups import Call, Group

REPLIES: dict[str, Any] = {
    "run_training": {"train/value_loss": 1.0},
    "evaluate": {"loss": 2.0, "rank_correlation": 0.5},
    "label": {"frames": 12.0, "positive": 0.25},
    "pop_execution_times": {},
    "finish_checkpoint": True,
}


def read(folder: Path, **changes: Any) -> ValueConfig:
    logger = {"log_path": str(folder), "logger_backends": []}
    cfg = validate_cfg(changed(RECAP, {"runner.logger": logger, **changes}))
    assert isinstance(cfg, ValueConfig)
    return cfg


def run(cfg: ValueConfig) -> tuple[dict[str, float], list[Call]]:
    def reply(call: Call) -> None:
        if call.method == "save_checkpoint":
            folder = Path(call.args[0])
            folder.mkdir(parents=True)
            (folder / "weights").write_text("saved")
        call.give(REPLIES.get(call.method))

    actor = Group("ActorGroup", 1, reply)
    runner = ValueRunner(cfg, actor=cast("Any", actor))
    runner.init_workers()
    return runner.run(), actor.calls


def test_data_sets_are_labelled_once_after_the_last_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics, calls = run(read(tmp_path))
    assert metrics["train/value_loss"] == 1.0
    assert metrics["time/samples_per_second"] > 0
    methods = [call.method for call in calls if call.method not in {"pop_execution_times", "finish_checkpoint"}]
    assert methods == ["init_worker", "run_training", "run_training", "save_checkpoint", "publish", "label"]
    assert calls[-1].args == ("q30",)
    (saved,) = [call.args[0] for call in calls if call.method == "save_checkpoint"]
    (published,) = [call.args[0] for call in calls if call.method == "publish"]
    assert Path(saved).parent == Path(published)
    assert "Labelled 12 frames of . as 'q30': 25.0% are positive." in capsys.readouterr().out


def test_a_run_without_labels_writes_none(tmp_path: Path) -> None:
    _, calls = run(read(tmp_path, **{"data.advantage_tag": None}))
    assert "label" not in [call.method for call in calls]


def test_held_out_frames_are_judged_where_the_recipe_has_some(tmp_path: Path) -> None:
    metrics, calls = run(read(tmp_path, **{"data.val": [{"path": "."}], "runner.val_check_interval": 2}))
    assert metrics["eval/rank_correlation"] == 0.5
    assert [call.method for call in calls].count("evaluate") == 2


def test_labelling_alone_evaluates_nothing(tmp_path: Path) -> None:
    metrics, calls = run(read(tmp_path, **{"runner.only_eval": True, "runner.ckpt_path": "x"}))
    assert [call.method for call in calls if call.method != "pop_execution_times"] == ["init_worker", "label"]
    assert not [name for name in metrics if name.startswith("eval/")]


def test_the_actor_is_the_only_group(tmp_path: Path) -> None:
    class Launcher:
        sizes = {"actor": 2}
        started: list[str] = []

        def start(self, component: str, group: object) -> None:
            del group
            self.started.append(component)

    launcher, cfg = Launcher(), read(tmp_path)
    assert read_nothing(cfg, cast("Any", None)) == (cfg, {})
    assert start_workers(cfg, cast("Any", launcher)) is cfg
    assert launcher.started == ["actor"]
