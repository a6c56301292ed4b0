"""Published recipes are found and composed with their presets, wherever these are and whatever cannot be resolved."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from rlinf.cli.migrate_compose import compose_published, find_recipes
from rlinf.errors import ConfigError

RECIPE = """
defaults:
  - env/cart@env.train
  - shared/fsdp@actor.fsdp_config
  - override hydra/job_logging: stdout

hydra:
  searchpath:
    - file://${oc.env:NOT_SET_ANYWHERE}/config/

runner: {task_type: embodied, seq_length: 96, path: "${oc.env:NOT_SET_ANYWHERE}/x"}
data: {max_prompt_length: 32, files: ["${runner.path}", plain]}
algorithm:
  max_new_tokens: ${subtract:${runner.seq_length}, ${data.max_prompt_length}}
  other: ${not:true}
  batch: ${int_div:${multiply:8, 4}, 2}
  broken: ${int_div:1, 0}
  nowhere: ${runner.nothing}
  unknown: ${unheard_of:1}
"""


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """Return the folder of a published repository: recipes in a folder of their own, presets above and next to it."""
    files = {
        "embodiment/config/env/cart.yaml": "env_type: gymnasium\nseed: 3\n",
        "embodiment/config/first.yaml": "defaults:\n  - env/cart@env.train\nrunner: {task_type: embodied}\n",
        "reasoning/config/shared/fsdp.yaml": "strategy: fsdp\n",
        "reasoning/config/math/second.yaml": RECIPE,
        "reasoning/config/no_recipe.yaml": "qkv_dgrad: {method: ring}\n",
        "reasoning/other/not_yaml.txt": "runner: {}\n",
    }
    for name, text in files.items():
        path = tmp_path / "examples" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "examples"


def test_recipes_are_found_and_presets_are_not(examples: Path) -> None:
    found = [path.relative_to(examples).as_posix() for path in find_recipes(examples)]
    assert found == ["embodiment/config/first.yaml", "reasoning/config/math/second.yaml"]
    assert find_recipes(examples / found[0]) == [examples / found[0]]


@pytest.mark.parametrize("name", ["nowhere", "reasoning/other"])
def test_a_place_without_recipes_is_refused(examples: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        find_recipes(examples / name)


def test_presets_above_and_in_other_examples_are_used(examples: Path) -> None:
    recipe = compose_published(examples / "reasoning/config/math/second.yaml")
    assert recipe["env"] == {"train": {"env_type": "gymnasium", "seed": 3}}
    assert recipe["actor"] == {"fsdp_config": {"strategy": "fsdp"}}
    assert "hydra" not in recipe


def test_presets_above_a_recipe_are_found_outside_of_examples(tmp_path: Path) -> None:
    (tmp_path / "config" / "env").mkdir(parents=True)
    (tmp_path / "config" / "math").mkdir()
    (tmp_path / "config" / "env" / "cart.yaml").write_text("seed: 5\n")
    file = tmp_path / "config" / "math" / "recipe.yaml"
    file.write_text("defaults:\n  - env/cart@env.train\nrunner: {}\n")
    assert compose_published(file)["env"] == {"train": {"seed": 5}}


def test_interpolations_are_resolved_where_that_is_possible(examples: Path) -> None:
    recipe = compose_published(examples / "reasoning/config/math/second.yaml")
    algorithm = recipe["algorithm"]
    assert (algorithm["max_new_tokens"], algorithm["other"], algorithm["batch"]) == (64, False, 16)
    assert algorithm["nowhere"] == "${runner.nothing}"
    assert algorithm["unknown"].startswith("${unheard_of:")
    assert algorithm["broken"].startswith("${int_div:")
    assert recipe["runner"]["path"] == "${oc.env:NOT_SET_ANYWHERE}/x"
    assert recipe["data"]["files"] == ["${runner.path}", "plain"]


def test_functions_of_interpolations_do_not_stay_registered(examples: Path) -> None:
    OmegaConf.register_new_resolver("add", lambda *parts: "mine")
    try:
        compose_published(examples / "reasoning/config/math/second.yaml")
        assert not OmegaConf.has_resolver("subtract")
        assert OmegaConf.create({"x": "${add:1,2}"}).x == "mine"
    finally:
        OmegaConf.clear_resolver("add")


def test_a_missing_preset_is_named(examples: Path) -> None:
    file = examples / "embodiment/config/third.yaml"
    file.write_text("defaults:\n  - env/moon@env.train\nrunner: {}\n")
    with pytest.raises(ConfigError, match=r"third\.yaml: cannot be composed: .*env/moon"):
        compose_published(file)


def test_a_file_that_is_no_yaml_is_refused_by_its_name(examples: Path) -> None:
    file = examples / "embodiment/config/fourth.yaml"
    file.write_text("runner: {task_type: [\n")
    assert file in find_recipes(examples)
    with pytest.raises(ConfigError, match=r"fourth\.yaml"):
        compose_published(file)
