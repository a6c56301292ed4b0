"""The recipe of a run on its page: where each value comes from."""

from pathlib import Path
from typing import Any

import yaml

from rlinf.telemetry.report import RunFolder
from rlinf.telemetry.report.recipe import describe_recipe
from tests.unit.telemetry.report.report_runs import RECIPE, make_run


def recipe_of(folder: Path) -> tuple[dict[str, Any] | None, dict[Any, Any]]:
    recipe = describe_recipe(RunFolder.read(folder))
    return recipe, {key["path"]: key for key in recipe["keys"]}


def test_every_key_says_where_its_value_comes_from(tmp_path: Path) -> None:
    recipe, keys = recipe_of(make_run(tmp_path, overrides=["actor.optim.lr=5e-4", "runner.max_epochs=20"]))
    assert recipe["recipe"] == RECIPE
    assert recipe["overrides"] == ["actor.optim.lr=5e-4", "runner.max_epochs=20"]
    assert keys["actor.optim.lr"]["origin"] == "command"
    assert keys["runner.max_epochs"] == {
        "path": "runner.max_epochs",
        "value": "20",
        "default": "1000",
        "origin": "command",
    }
    assert keys["env.train.env_type"]["origin"] == "recipe"
    assert keys["runner.keep_checkpoints"]["origin"] == "default"
    # The keys of the advantage and the loss stand directly under algorithm.
    assert keys["algorithm.gamma"]["value"]


def test_a_recipe_of_another_version_is_shown_unmarked(tmp_path: Path) -> None:
    folder = make_run(tmp_path, overrides=["runner.max_epochs=20"])
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["actor"]["key_of_old"] = [1, 2]
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    _, keys = recipe_of(folder)
    assert keys["actor.key_of_old"] == {"path": "actor.key_of_old", "value": "[1, 2]", "origin": "unknown"}
    assert keys["runner.max_epochs"]["origin"] == "command"


def test_the_recorded_placement_is_shown_and_without_it_the_planned_one(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    assert "actor" in recipe_of(folder)[0]["placement"]
    folder = make_run(tmp_path, resume=True, placement="node 0: everything")
    assert recipe_of(folder)[0]["placement"] == "node 0: everything"
