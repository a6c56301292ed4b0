"""What is said of overrides that the shell or Hydra reads otherwise than meant can be followed."""

from __future__ import annotations

import re

import pytest

from rlinf.cli.main import main
from rlinf.config import load_recipe, validate_cfg
from rlinf.errors import ConfigError

RECIPE = "gym_cartpole_ppo_mlp"


def told(override: str) -> str:
    with pytest.raises(ConfigError) as caught:
        validate_cfg(load_recipe(RECIPE, [override]))
    return str(caught.value)


@pytest.mark.parametrize("override", ["runner.stop_at={eval/return:", "runner.stop_at={'eval/return': 475}"])
def test_a_mapping_that_the_shell_cut_or_whose_keys_are_quoted(override: str) -> None:
    text = told(override)
    assert "single quotes for the shell and without quotes around its keys" in text
    remedy = re.search(r"keys: 'runner\.stop_at=(\{.*?\})'", text).group(1)
    assert "cannot be read" not in told(f"runner.max_epochs={remedy}"), "what is shown can be read"


@pytest.mark.parametrize("override", ["runner.stop_at=eval/return: 475", 'runner.stop_at="{eval/return: 475}"'])
def test_a_mapping_that_became_a_string(override: str) -> None:
    text = told(override)
    written = re.search(r"'\.\.\.=(\{.*\})'", text).group(1)
    cfg = validate_cfg(load_recipe(RECIPE, [f"runner.stop_at={written}"]))
    assert cfg.runner.stop_at == {"eval/return": 475}


def test_a_mapping_without_braces() -> None:
    text = told("cluster.component_placement=actor: 0, rollout: 0, env: 0")
    written = re.search(r"braces: '(.*)'", text).group(1)
    assert validate_cfg(load_recipe(RECIPE, [written])).cluster.component_placement["actor"] == 0


def test_a_list_without_brackets() -> None:
    text = told("actor.model.hidden_dims=64,64")
    written = re.search(r"write '(.*?)' for a list", text).group(1)
    assert validate_cfg(load_recipe(RECIPE, [written])).actor.model.hidden_dims == [64, 64]


def test_a_preset_without_its_place() -> None:
    assert "model@actor.model=NAME" in told("model=mlp_policy")


def test_a_key_written_as_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["plan", RECIPE, "--lr", "0.1"])
    assert caught.value.code == 2
    assert "without dashes: runner.max_steps=10" in capsys.readouterr().err
