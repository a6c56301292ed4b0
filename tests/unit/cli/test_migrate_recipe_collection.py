"""Data sets that published recipes collect, while they train or while they only evaluate."""

from __future__ import annotations

import pytest
import yaml

from rlinf.cli.migrate_recipe import Migration, migrate_recipe
from rlinf.config import validate_cfg
from tests.unit.cli.test_migrate_recipe import PPO

PUBLISHED_COLLECTION = {
    "save_dir": "None/collected_data",
    "export_format": "lerobot",
    "only_success": True,
    "robot_type": "panda",
    "fps": 20,
    "finalize_interval": 50,
}


def collecting(split: str, *, only_eval: bool, enabled: bool = True, env_type: str = "gymnasium") -> Migration:
    recipe = yaml.safe_load(PPO)
    recipe["runner"]["only_eval"] = only_eval
    recipe["env"][split] |= {"data_collection": {"enabled": enabled, **PUBLISHED_COLLECTION}, "env_type": env_type}
    return migrate_recipe(recipe)


def test_what_is_trained_on_is_collected_where_the_published_recipe_says() -> None:
    result = collecting("train", only_eval=False)
    assert (result.outcome, result.lost) == ("complete", [])
    collection = validate_cfg(result.recipe).env.train.data_collection
    assert (collection.enabled, collection.only_success) == (True, True)
    assert (collection.save_dir, collection.robot_type, collection.fps) == (None, "panda", 20)
    dropped = {key.rpartition(".")[2] for key, _ in result.dropped if "data_collection" in key}
    assert dropped == {"save_dir", "export_format", "finalize_interval"}


def test_what_is_collected_of_environments_that_are_not_played_for_it_is_said() -> None:
    """``env.train`` is played in training alone; here ``env.eval`` is collected from in runs that do not train."""
    result = collecting("train", only_eval=True)
    assert ("env.train.data_collection", "a run that only evaluates does not play env.train") in result.dropped
    assert not validate_cfg(result.recipe).env.train.data_collection.enabled
    result = collecting("eval", only_eval=False)
    assert [key for key, _ in result.lost] == ["env.eval.data_collection"]
    result = collecting("eval", only_eval=True)
    assert (result.outcome, validate_cfg(result.recipe).env.eval.data_collection.fps) == ("complete", 20)


@pytest.mark.parametrize("split", ["train", "eval"])
def test_where_nothing_is_collected_nothing_is_lost(split: str) -> None:
    result = collecting(split, only_eval=False, enabled=False)
    assert (result.outcome, result.lost) == ("complete", [])
    assert not getattr(validate_cfg(result.recipe).env, split).data_collection.enabled


@pytest.mark.parametrize(("split", "only_eval"), [("train", False), ("eval", True)])
def test_simulators_in_guests_are_collected_from_as_well(split: str, only_eval: bool) -> None:
    env = collecting(split, only_eval=only_eval, env_type="robotwin").recipe["env"]
    assert env[split]["data_collection"] == {"enabled": True, "only_success": True, "robot_type": "panda", "fps": 20}
    assert "data_collection" not in env[split]["init_params"]
    other = collecting(split, only_eval=not only_eval, env_type="robotwin").recipe["env"]
    assert "data_collection" not in other[split]
