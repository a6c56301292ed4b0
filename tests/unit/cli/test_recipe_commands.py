"""``rlinf train``, ``eval`` and ``collect``: which recipe they launch, and how they end."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rlinf.cli import recipe_commands
from rlinf.cli.main import main
from tests.unit.runners.conftest import save_checkpoint

RECIPE = "gym_cartpole_ppo_mlp"


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """Recipes that are launched; nothing runs. The working directory is an empty folder."""
    calls: list[Any] = []
    module = ModuleType("fake_launch")
    module.launch = lambda cfg: calls.append(cfg) or {"loss": 1.0}  # type: ignore[attr-defined, func-returns-value]
    monkeypatch.setitem(sys.modules, "fake_launch", module)
    monkeypatch.setattr(recipe_commands, "_LAUNCH", "fake_launch:launch")
    monkeypatch.chdir(tmp_path)
    return calls


def test_a_recipe_is_trained_by_its_name_from_any_folder(launched: list[Any]) -> None:
    assert main(["train", RECIPE, "actor.seed=9"]) == 0
    (cfg,) = launched
    assert (cfg.actor.seed, cfg.runner.only_eval, cfg.runner.resume_dir) == (9, False, None)


@pytest.mark.parametrize("recipe", ["gym_cartpole_async_ppo_mlp", "tiny_math_grpo", "tiny_math_sft"])
def test_recipes_of_every_kind_are_launched(launched: list[Any], recipe: str, tmp_path: Path) -> None:
    for name in ("train.jsonl", "val.jsonl"):
        (tmp_path / name).touch()
    keys = [] if "gym" in recipe else [f"actor.model.model_path={tmp_path}"]
    keys += [] if "gym" in recipe else [f"data.{s}_data_paths=[{tmp_path / s}.jsonl]" for s in ("train", "val")]
    (tmp_path / "config.json").write_text("{}")
    assert main(["train", recipe, *keys]) == 0
    assert len(launched) == 1


def test_an_evaluation_takes_the_newest_checkpoint_or_what_is_named(
    launched: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", RECIPE]) == 1
    assert "no complete checkpoint" in capsys.readouterr().err
    save_checkpoint(tmp_path / "results" / RECIPE, 4)
    assert main(["eval", RECIPE]) == 0
    assert (launched[-1].runner.only_eval, launched[-1].runner.resume_dir) == (True, "auto")
    assert main(["eval", RECIPE, "runner.eval_initial_policy=true"]) == 0
    assert launched[-1].runner.resume_dir is None
    (tmp_path / "weights.pt").touch()
    assert main(["eval", RECIPE, "runner.ckpt_path=weights.pt"]) == 0
    assert launched[-1].runner.resume_dir is None


def test_episodes_are_collected(launched: list[Any], tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "results" / RECIPE, 4)
    assert main(["collect", RECIPE]) == 0
    cfg = launched[-1]
    assert (cfg.runner.only_eval, cfg.env.eval.data_collection.enabled) == (True, True)


def test_mistakes_have_the_exit_codes_of_the_scripts(launched: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", RECIPE, "actor.lrr=1"]) == 1
    assert "actor.lrr" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["train"])
    assert caught.value.code == 2
    assert main(["collect", "tiny_math_grpo"]) == 1
    assert "env" in capsys.readouterr().err
    assert main(["eval", "-m", RECIPE, "actor.seed=1,2"]) == 1
    assert "rlinf eval has no sweeps" in capsys.readouterr().err
    assert not launched


def test_quiet_reaches_the_run(launched: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RLINF_QUIET", "RLINF_LOG_LEVEL"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    assert main(["train", RECIPE, "--quiet"]) == 0
    assert (os.environ["RLINF_QUIET"], os.environ["RLINF_LOG_LEVEL"]) == ("1", "WARNING")
