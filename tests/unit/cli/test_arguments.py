"""Overrides may stand anywhere; unknown options are refused; recipes may lie in an own folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rlinf.cli.main import main
from rlinf.config import build_config, load_recipe, validate_cfg

RECIPE = "gym_cartpole_ppo_mlp"


def test_overrides_may_stand_on_both_sides_of_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--resolved", RECIPE, "actor.seed=5", "--accelerators-per-node", "0", "env.train.seed=6"]) == 0
    resolved = yaml.safe_load(capsys.readouterr().out.partition("\ncluster:")[2].join(["cluster:", ""]))
    cfg = build_config(resolved)
    assert cfg == validate_cfg(load_recipe(RECIPE, ["actor.seed=5", "env.train.seed=6"]))


def test_unknown_option_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["plan", RECIPE, "--resolve-all"])
    assert caught.value.code == 2
    assert "--resolve-all" in capsys.readouterr().err


def test_own_folder_of_recipes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"defaults: [{RECIPE}, _self_]\nrunner: {{max_epochs: 77}}\n")
    assert main(["plan", "mine", "--config-dir", str(tmp_path)]) == 0
    assert "77 steps" in capsys.readouterr().out
