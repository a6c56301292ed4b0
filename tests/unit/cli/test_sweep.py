"""``rlinf train -m``: which runs a sweep starts, what they are named, and how it ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlinf.cli import sweep
from rlinf.cli.main import main

RECIPE = "gym_cartpole_ppo_mlp"


class Child:
    """A run that ends at once: its return is its seed, and seed 2 fails if it shall."""

    started: list[list[str]] = []
    failing = ""
    interrupt_at = 0
    terminated = 0

    def __init__(self, command: list[str]) -> None:
        self.started.append(command)
        values = dict(text.split("=", 1) for text in command if "=" in text)
        self.code = 1 if self.failing and self.failing in command else 0
        folder = Path(values["runner.logger.log_path"]) / values["runner.logger.experiment_name"].strip("'")
        folder.mkdir(parents=True)
        score = float(values["actor.seed"]) + 100 * float(values.get("actor.optim.lr", 0))
        (folder / "metrics.jsonl").write_text(json.dumps({"step": 1, "eval/return": score}) + "\n")

    def wait(self, timeout: float | None = None) -> int:
        if timeout is None and len(self.started) == Child.interrupt_at:
            raise KeyboardInterrupt
        return self.code

    def poll(self) -> int:
        return self.code

    def terminate(self) -> None:
        Child.terminated += 1


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """Return a function that runs a sweep below ``tmp_path``; no process is started."""
    monkeypatch.setattr(sweep, "subprocess", SimpleNamespace(Popen=Child, TimeoutExpired=TimeoutError))
    monkeypatch.setattr(Child, "started", [])
    monkeypatch.setattr(Child, "interrupt_at", 0)
    monkeypatch.setattr(Child, "terminated", 0)

    def run(*arguments: str, failing: str = "") -> int:
        monkeypatch.setattr(Child, "failing", failing)
        return main(["train", RECIPE, "-m", f"runner.logger.log_path={tmp_path}", *arguments])

    return run


def test_every_combination_is_a_run_of_its_own(
    children: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert children("actor.seed=1,2,3", "actor.optim.lr=0.1,0.2", "runner.max_epochs=4") == 0
    assert len(Child.started) == 6
    command = Child.started[0]
    assert command[:5] == [sys.executable, "-m", "rlinf", "train", RECIPE]
    assert {"runner.max_epochs=4", "actor.seed=1", "actor.optim.lr=0.1"} <= set(command)
    folders = sorted(path.name for path in (tmp_path / f"{RECIPE}_sweep").iterdir() if path.is_dir())
    assert folders[0] == "actor.seed=1,actor.optim.lr=0.1"
    assert len(folders) == 6
    table = capsys.readouterr().out.splitlines()[-4:]
    assert table[1].split()[:5] == ["actor.optim.lr=0.1", "3", "12", "±", "2.5"]
    assert table[2].split()[2] == "22"
    assert "rlinf report" in table[3]
    recorded = json.loads((tmp_path / f"{RECIPE}_sweep" / "sweep.json").read_text())
    assert [one["metrics"]["eval/return"] for one in recorded] == [11, 21, 12, 22, 13, 23]


def test_a_failed_run_does_not_end_the_others(children: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    assert children("actor.seed=1,2,3", failing="actor.seed=2") == 1
    assert len(Child.started) == 3
    assert "3 (1 failed)" in capsys.readouterr().out


def test_an_interrupt_ends_the_run_and_the_sweep_which_still_has_its_table(
    children: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Child, "interrupt_at", 2)
    assert children("actor.seed=1,2,3") == 130
    assert (len(Child.started), Child.terminated) == (2, 1)
    assert "eval/return" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["actor.seed=1"], "no override has several values"),
        (["actor.seed=1,2", "actor.lrr=1"], "actor.lrr"),
        (["actor.optim.lr=interval(0,1)", "actor.seed=1,2"], "hydra/sweeper=optuna"),
    ],
)
def test_mistakes_are_reported_before_anything_runs(
    children: Callable[..., int], arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert children(*arguments) == 1
    assert message in capsys.readouterr().err
    assert not Child.started


def test_a_sweeper_of_hydra_chooses_the_points_and_gets_their_objectives(
    children: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []

    class Halving:
        """Asks for two points, then for one more near the better one."""

        launcher: Any = None

        def sweep(self, arguments: list[str]) -> None:
            given.append(arguments)
            first = self.launcher.launch([("actor.seed=1",), ("actor.seed=4",)], initial_job_idx=0)
            best = max(first, key=lambda job: job.return_value).return_value
            given.append(self.launcher.launch([(f"actor.seed={int(best) + 1}",)], initial_job_idx=2))

    monkeypatch.setattr(sweep, "_make_sweeper", lambda settings: given.append(settings) or Halving())
    assert children("hydra/sweeper=mine", "actor.seed=range(1,9)", failing="actor.seed=5") == 1
    settings, arguments, last = given
    assert settings[0] == "hydra/sweeper=mine"
    assert arguments == ["actor.seed=range(1,9)"]
    assert [next(text for text in command if "seed" in text) for command in Child.started] == [
        "actor.seed=1",
        "actor.seed=4",
        "actor.seed=5",
    ]
    with pytest.raises(ValueError, match="no such metric"):
        _ = last[0].return_value


def test_a_missing_sweeper_names_the_command_that_installs_it(
    children: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        import hydra_plugins.hydra_optuna_sweeper  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        assert children("hydra/sweeper=optuna", "actor.seed=1,2") == 1
        assert "rlinf[optuna]" in capsys.readouterr().err
    assert children("hydra/sweeper=absent", "actor.seed=1,2") == 1
    assert "absent" in capsys.readouterr().err
    assert not Child.started


def test_optuna_chooses_points(children: Callable[..., int], tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="needs hydra-optuna-sweeper: rlinf[optuna]")
    keys = ("hydra/sweeper=optuna", "hydra.sweeper.n_trials=4", "hydra.sweeper.sampler.seed=1")
    assert children(*keys, "actor.optim.lr=interval(0.001,0.1)", "actor.seed=3") == 0
    assert len(Child.started) == 4
    best = (tmp_path / f"{RECIPE}_sweep" / "optimization_results.yaml").read_text()
    recorded = json.loads((tmp_path / f"{RECIPE}_sweep" / "sweep.json").read_text())
    assert str(max(one["metrics"]["eval/return"] for one in recorded)) in best
