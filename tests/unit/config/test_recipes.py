"""Recipes are found and composed with nothing left behind, and overrides mean what they say."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest
from hydra.core.global_hydra import GlobalHydra

from rlinf.config import build_config, list_recipes, load_recipe
from rlinf.errors import ConfigError

RECIPE = "gym_cartpole_ppo_mlp"


@pytest.fixture
def own_dir(tmp_path: Path) -> Path:
    """A folder with a recipe that uses the presets of the shipped ones, and one of its own."""
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "mine.yaml").write_text("env_type: gymnasium\ninit_params: {id: Acrobot-v1}\n")
    (tmp_path / "mine.yaml").write_text(
        "defaults: [{env@env.train: mine}, {model@actor.model: mlp_policy}, _self_]\nactor: {seed: 7}\n"
    )
    return tmp_path


def test_presets_are_mounted_into_train_and_eval() -> None:
    cfg = load_recipe(RECIPE)
    assert cfg.env.train.init_params.id == cfg.env.eval.init_params.id == "CartPole-v1"
    assert cfg.actor.model.model_type == "mlp_policy"


def test_plain_override_sets_keys_that_the_yaml_does_not_mention() -> None:
    cfg = load_recipe(
        RECIPE, ["actor.optim.weight_decay=0.5", "runner.stop_at={eval/return: 3}", "actor.optim.lr=5e-6"]
    )
    typed = build_config(cfg)
    assert typed.actor.optim.weight_decay == 0.5
    assert typed.actor.optim.lr == 5e-6
    assert typed.runner.stop_at == {"eval/return": 3.0}


def test_override_of_an_unknown_key_is_found_by_parsing() -> None:
    cfg = load_recipe(RECIPE, ["actor.optim.lrr=1"])
    with pytest.raises(ConfigError, match=r"actor\.optim\.lrr: unknown key\. Did you mean 'actor\.optim\.lr'"):
        build_config(cfg)


def test_group_choice_deletion_and_forced_keys_keep_hydras_meaning(own_dir: Path) -> None:
    overrides = ["env@env.train=mine", "~actor.optim.clip_grad", "++actor.seed=3"]
    cfg = load_recipe(RECIPE, overrides, own_dir)
    assert cfg.env.train.init_params.id == "Acrobot-v1"
    assert "clip_grad" not in cfg.actor.optim
    assert cfg.actor.seed == 3


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            ["cluster.component_placement={actor: 0-1, rollout: 0, env: 0-1}"],
            {"actor": "0-1", "rollout": 0, "env": "0-1"},
        ),
        (["cluster.component_placement.env=0-1"], {"actor,rollout": 0, "env": "0-1"}),
        (['cluster.component_placement.env="0:0-3,1"'], {"actor,rollout": 0, "env": "0:0-3,1"}),
        (
            ["cluster.component_placement.env.node_group=node", "cluster.component_placement.env.placement=1"],
            {"actor,rollout": 0, "env": {"node_group": "node", "placement": 1}},
        ),
    ],
)
def test_placement_override_replaces_the_rules_of_its_components(
    overrides: list[str], expected: dict[str, Any]
) -> None:
    assert load_recipe(RECIPE, overrides).cluster.component_placement == expected


@pytest.mark.parametrize(
    ("override", "remedy"),
    [
        ("actor.seed", "key=value"),
        ("actor seed=3", "key=value"),
        ("actor.seed=1,2", "quote"),
        ("cluster.component_placement.env=0-1,3", "double quotes"),
        ("+actor.optim.lr=3", r"\+\+actor\.optim\.lr=3"),
        ("env@env.train=gym_cartpol", "gym_cartpole"),
        ("~actor.nothing", "actor.nothing"),
    ],
)
def test_overrides_that_cannot_be_read_are_config_errors(override: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=remedy):
        load_recipe(RECIPE, [override])


def test_unknown_recipe_suggests_and_lists() -> None:
    with pytest.raises(ConfigError, match=f"Did you mean '{RECIPE}'.*--config-dir"):
        load_recipe("gym_cartpole_ppo")


def test_config_dir_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--config-dir.*not a folder"):
        load_recipe(RECIPE, config_dir=tmp_path / "absent")


def test_own_folder_comes_first_and_may_use_shipped_presets(own_dir: Path) -> None:
    cfg = load_recipe("mine", config_dir=own_dir)
    assert cfg.actor.seed == 7
    assert cfg.actor.model.model_type == "mlp_policy"
    assert cfg.env.train.init_params.id == "Acrobot-v1"
    assert {"mine", RECIPE} <= set(list_recipes(own_dir))
    (own_dir / f"{RECIPE}.yaml").write_text("actor: {seed: 11}\n")
    assert load_recipe(RECIPE, config_dir=own_dir).actor.seed == 11


def test_path_of_a_recipe_is_a_name_too(own_dir: Path) -> None:
    assert load_recipe(str(own_dir / "mine.yaml")).actor.seed == 7


def test_recipes_under_the_working_directory_are_found(
    own_dir: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path_factory.mktemp("work")
    (work / "examples" / "rope").mkdir(parents=True)
    own_dir.rename(work / "examples" / "rope" / "config")
    monkeypatch.chdir(work)
    assert load_recipe("mine").actor.seed == 7


@pytest.mark.parametrize(
    "text",
    [b"a: [1\n", b"a: 1\na: 2\n", b"defaults: [missing_group: x]\n", b"defaults: env\n", b"- a\n", b"\xff\xfe bad"],
)
def test_broken_yaml_is_a_config_error_that_names_the_recipe(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "broken.yaml").write_bytes(text)
    with pytest.raises(ConfigError, match="recipe broken"):
        load_recipe("broken", config_dir=tmp_path)


def test_composing_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    handlers = list(logging.getLogger().handlers)
    cwd = os.getcwd()
    load_recipe(RECIPE)
    assert list(tmp_path.iterdir()) == []
    assert logging.getLogger().handlers == handlers
    assert os.getcwd() == cwd
    assert not GlobalHydra.instance().is_initialized()
