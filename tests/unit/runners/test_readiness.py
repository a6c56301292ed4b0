"""What this machine lacks for a recipe is told before anything is launched."""

from __future__ import annotations

import dataclasses
import importlib.util

import pytest

from rlinf.config import load_recipe, validate_cfg
from rlinf.errors import CheckpointError, ConfigError, MissingPackageError
from rlinf.runners import readiness
from rlinf.runners.readiness import check_ready


@pytest.fixture
def ready(tmp_path):
    """Return a function that checks a recipe whose results go below ``tmp_path``."""

    def check(*overrides, recipe="gym_cartpole_ppo_mlp", log_path=tmp_path / "a" / "b"):
        check_ready(validate_cfg(load_recipe(recipe, [f"runner.logger.log_path={log_path}", *overrides])))

    return check


def test_a_machine_that_has_everything_is_ready(ready, tmp_path):
    ready()
    assert not list(tmp_path.iterdir()), "looking makes nothing"


@pytest.mark.parametrize("package", ["torch", "ray"])
def test_a_missing_package_is_told_with_its_command(ready, monkeypatch, package):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))
    with pytest.raises(MissingPackageError, match=rf"'{package}' is not installed .*requirements/install\.sh"):
        ready()


def test_a_file_in_the_place_of_the_results_folder_is_told(ready, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ConfigError, match=r"runner\.logger\.log_path: '.*file' is a file.*Set runner\.logger\.log_path"
    ):
        ready(log_path=tmp_path / "file" / "results")


def test_a_full_disk_is_told(ready, monkeypatch):
    monkeypatch.setattr(readiness, "MIN_FREE_BYTES", 1 << 60)
    with pytest.raises(ConfigError, match=r"runner\.logger\.log_path: the disk of .* is full.*Free some space"):
        ready()


def test_weights_and_models_that_are_not_there_are_told(ready, tmp_path):
    with pytest.raises(CheckpointError, match=r"runner\.ckpt_path: '.*absent\.pt' does not exist.*remove the key"):
        ready(f"runner.ckpt_path={tmp_path}/absent.pt")
    with pytest.raises(ConfigError, match=r"actor\.model\.model_path: there is no folder.*hf download"):
        ready(f"actor.model.model_path={tmp_path}/absent", recipe="tiny_math_sft")


def test_services_that_recipes_choose_are_looked_at(tmp_path):
    cfg = validate_cfg(load_recipe("gym_cartpole_ppo_mlp", [f"runner.logger.log_path={tmp_path}"]))
    logger = dataclasses.replace(cfg.runner.logger, logger_backends=["nowhere"])
    with pytest.raises(ConfigError, match="names 'nowhere'"):
        check_ready(dataclasses.replace(cfg, runner=dataclasses.replace(cfg.runner, logger=logger)))
