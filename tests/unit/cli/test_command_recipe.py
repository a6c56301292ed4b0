"""What each command sets in the recipe that it runs."""

from __future__ import annotations

from typing import Any

import pytest

from rlinf.cli.command_recipe import read_recipe
from rlinf.errors import ConfigError

RECIPE = "gym_cartpole_ppo_mlp"


@pytest.mark.parametrize(
    ("command", "evaluates", "resumes", "collects"),
    [("train", False, None, False), ("eval", True, "auto", False), ("collect", True, "auto", True)],
)
def test_a_command_sets_its_keys(command: str, evaluates: bool, resumes: str | None, collects: bool) -> None:
    cfg: Any = read_recipe(command, RECIPE, ["actor.seed=3"], None)
    assert cfg.actor.seed == 3
    assert (cfg.runner.only_eval, cfg.runner.resume_dir) == (evaluates, resumes)
    assert cfg.env.eval.data_collection.enabled == collects


def test_a_command_wins_over_an_override() -> None:
    assert read_recipe("eval", RECIPE, ["runner.only_eval=false"], None).runner.only_eval


def test_a_recipe_without_environments_cannot_collect() -> None:
    with pytest.raises(ConfigError, match="env"):
        read_recipe("collect", "tiny_math_grpo", [], None)
