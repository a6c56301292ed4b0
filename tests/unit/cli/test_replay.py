"""What ``rlinf replay`` says of steps that were not dumped, and of metrics that are equal or not."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rlinf.cli import replay
from rlinf.cli.main import main
from rlinf.config import load_recipe, to_dict, validate_cfg
from rlinf.telemetry.logger import METRICS_FILE
from rlinf.telemetry.rundir import CONFIG_FILE, dump_folder


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """Return the folder of a run whose steps 2 and 11 were dumped."""
    import yaml

    cfg = validate_cfg(load_recipe("gym_cartpole_ppo_mlp", ["runner.dump_steps=[2, 11]"]))
    (tmp_path / CONFIG_FILE).write_text(yaml.safe_dump(to_dict(cfg)))
    for step in (2, 11):
        dump_folder(tmp_path, step).mkdir(parents=True)
    rows = [{"step": 1, "train/loss": 1.0}, {"step": 2, "train/loss": 0.5, "train/kl": 2.0, "train/bad": None}]
    rows.append({"step": 3, "train/loss": 0.4, "train/kl": 0.0})
    (tmp_path / METRICS_FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_a_folder_without_a_run_and_a_step_that_was_not_dumped_are_errors(
    run_folder: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(tmp_path_factory.mktemp("empty")), "--step", "1"]) == 1
    assert "holds no run: there is no config.yaml" in capsys.readouterr().err
    assert main(["replay", str(run_folder), "--step", "3"]) == 1
    assert "Step 3 of" in (said := capsys.readouterr().err)
    assert "these were: 2, 11" in said


@pytest.mark.parametrize(
    ("replayed", "verdict"),
    [
        (
            {"train/loss": 0.5, "train/kl": 2.0, "train/bad": math.nan},
            "All 3 recorded metrics are the same to the bit.",
        ),
        ({"train/loss": 0.5, "train/kl": 2.0, "train/new": 1.0}, "All 2 recorded metrics are the same to the bit."),
        ({"train/loss": 0.5, "train/bad": 1.0}, "1 of 2 metrics differ, by inf of their value at most."),
        ({"train/loss": 0.4, "train/kl": 2.0}, "1 of 2 metrics differ, by 2.0e-01 of their value at most."),
    ],
)
def test_metrics_stand_next_to_the_recorded_ones(
    run_folder: Path,
    replayed: dict[str, float],
    verdict: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen: list[Any] = []

    def make_step(cfg: Any, folder: Path, step: int) -> dict[str, float]:
        seen.append((cfg.algorithm.loss.clip_ratio_high, folder, step))
        return replayed

    monkeypatch.setattr(replay, "_make_step", make_step)
    assert main(["replay", str(run_folder), "--step", "2", "algorithm.clip_ratio_high=0.31"]) == 0
    assert seen == [(0.31, dump_folder(run_folder, 2), 2)]
    *table, last = capsys.readouterr().out.strip().splitlines()
    assert last == verdict
    (loss,) = (line.split() for line in table if line.startswith("train/loss"))
    assert loss[1:] == ["0.5", repr(replayed["train/loss"])]


@pytest.mark.parametrize("fails", [False, True])
def test_the_worker_is_closed_even_if_its_step_fails(
    run_folder: Path, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    class Actor:
        def __init__(self, cfg: Any, receivers: Any) -> None:
            calls.append("built")

        def init_worker(self) -> None: ...

        def load_checkpoint(self, path: str) -> None: ...

        def compute_advantages(self, batch: Any) -> dict[str, float]:
            return {"rollout/reward": 1.0, "time/actor/prepare": 9.0}

        def run_training(self, *, step: int) -> dict[str, float]:
            if fails:
                raise RuntimeError("no gradient")
            return {"train/loss": float(step)}

        def _shut_down(self) -> None:
            calls.append("closed")

    dumped = SimpleNamespace(num_threads=torch.get_num_threads(), version=1, batch=None)
    monkeypatch.setattr("rlinf.workers.actor.actor_worker.ActorWorker", Actor)
    monkeypatch.setattr("rlinf.workers.actor.step_dump.read_step", lambda folder: dumped)
    cfg = validate_cfg(load_recipe("gym_cartpole_ppo_mlp", []))
    if fails:
        with pytest.raises(RuntimeError, match="no gradient"):
            replay._make_step(cfg, run_folder, 2)
    else:
        assert replay._make_step(cfg, run_folder, 2) == {"rollout/reward": 1.0, "train/loss": 2.0}
    assert calls == ["built", "closed"]
