"""``rlinf.train`` and ``rlinf.evaluate``: which recipe is launched, and what comes back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rlinf
from rlinf.api import runs
from rlinf.errors import CheckpointError, ConfigError
from tests.unit.runners.conftest import save_checkpoint

RECIPE = "gym_cartpole_ppo_mlp"


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Recipes that are launched, with their callbacks; nothing runs."""
    calls: list[tuple[Any, Any]] = []

    def launch(cfg: Any, *, callbacks: Any = ()) -> dict[str, float]:
        calls.append((cfg, callbacks))
        folder = Path(cfg.runner.logger.log_path) / cfg.runner.logger.experiment_name
        (folder / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "loss": null}\n')
        return {"loss": 2.0}

    monkeypatch.setattr(runs, "launch", launch)
    return calls


def test_train_runs_a_recipe_with_overrides_and_callbacks(launched: list[tuple[Any, Any]], tmp_path: Path) -> None:
    def note(step: int, metrics: object) -> None:
        """Note nothing."""

    result = rlinf.train(RECIPE, {"runner.logger.log_path": tmp_path, "actor.seed": 7}, callbacks=[note])
    ((cfg, callbacks),) = launched
    assert (cfg.actor.seed, cfg.runner.only_eval, callbacks) == (7, False, [note])
    assert result.folder == tmp_path / RECIPE
    assert result.metrics == {"loss": 2.0}
    assert result.history == [{"step": 1, "loss": 2.5}, {"step": 2, "loss": None}]


def test_evaluate_takes_the_newest_checkpoint(launched: list[tuple[Any, Any]], tmp_path: Path) -> None:
    where = {"runner.logger.log_path": tmp_path}
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        rlinf.evaluate(RECIPE, where)
    save_checkpoint(tmp_path / RECIPE, 4)
    result = rlinf.evaluate(RECIPE, where)
    ((cfg, _),) = launched
    assert cfg.runner.only_eval
    assert Path(cfg.runner.resume_dir).name == "global_step_4"
    assert result.folder == tmp_path / RECIPE / "eval_only" / "step_00000004_1"
    rlinf.evaluate(RECIPE, {**where, "runner.eval_initial_policy": True})
    assert launched[-1][0].runner.resume_dir is None


def test_mistakes_are_typed_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"actor\.optim\.lrr"):
        rlinf.train(RECIPE, ["actor.optim.lrr=1"])


def test_the_names_of_the_package_root_cost_nothing_until_they_are_used() -> None:
    code = "import rlinf, sys; assert {'train', 'load_policy'} <= set(dir(rlinf)); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert all(callable(getattr(rlinf, name)) for name in rlinf.__all__)
    with pytest.raises(AttributeError, match="no attribute 'trane'"):
        _ = rlinf.trane
