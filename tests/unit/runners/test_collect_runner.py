"""A run that only collects plays its episodes once, and reports them; no actor is asked for anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from rlinf.config import load_recipe, validate_cfg
from rlinf.config.schema.root import CollectConfig
from rlinf.runners.collect_runner import CollectRunner, start_workers
from rlinf.telemetry.evaluation import EvalEpisode
from tests.unit.config.checks.test_collect_task import OPERATOR, RECIPE, WITHOUT_LEARNING
from tests.unit.runners.reply_groups import Call, Group


def read(folder: Path) -> CollectConfig:
    cfg = validate_cfg(load_recipe(RECIPE, [*WITHOUT_LEARNING, OPERATOR, f"runner.logger.log_path={folder}"]))
    assert isinstance(cfg, CollectConfig)
    return cfg


def reply(call: Call) -> None:
    episodes = [
        EvalEpisode(
            env=call.rank,
            epoch=0,
            number=0,
            metrics={"success_once": float(call.rank), "return": 0.0, "episode_len": 1.0},
        )
    ]
    call.give(episodes if call.method == "evaluate" else None)


def test_episodes_are_played_once_and_reported(tmp_path: Path) -> None:
    env, rollout = Group("EnvGroup", 2, reply), Group("RolloutGroup", 1, lambda call: call.give(None))
    runner = CollectRunner(read(tmp_path), rollout=cast("Any", rollout), env=cast("Any", env))
    runner.init_workers()
    assert runner.run()["eval/success_once"] == 0.5
    assert [call.method for call in rollout.calls] == ["init_worker", "evaluate"]
    assert [(call.method, call.rank) for call in env.calls] == [
        ("init_worker", 0), ("init_worker", 1), ("evaluate", 0), ("evaluate", 1)
    ]  # fmt: skip
    lines = (runner.logger.folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0]


def test_workers_are_those_that_play(tmp_path: Path) -> None:
    class Launcher:
        sizes = {"env": 2, "rollout": 1}
        started: list[str] = []

        def start(self, component: str, group: object) -> None:
            del group
            self.started.append(component)

    launcher, cfg = Launcher(), read(tmp_path)
    assert start_workers(cfg, cast("Any", launcher)) is cfg
    assert launcher.started == ["env", "rollout"]
