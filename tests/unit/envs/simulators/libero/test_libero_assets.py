"""LIBERO's assets are found where they are named, and what results depend on is stated."""

from importlib import metadata
from pathlib import Path

import pytest

from rlinf.envs.simulators.libero import libero_assets
from rlinf.envs.simulators.libero.libero_assets import find_assets, libero_versions
from rlinf.errors import ConfigError


def assets(folder: Path) -> Path:
    (folder / "scenes").mkdir(parents=True)
    return folder


def test_the_recipe_comes_before_the_variable_and_that_before_the_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, variable, installed = (assets(tmp_path / name) for name in ("named", "variable", "installed"))
    monkeypatch.setattr(libero_assets, "INSTALLED_ASSETS", installed)
    monkeypatch.delenv(libero_assets.ASSETS_VARIABLE, raising=False)
    assert find_assets(None) == installed
    monkeypatch.setenv(libero_assets.ASSETS_VARIABLE, str(variable))
    assert find_assets(None) == variable
    assert find_assets(str(named)) == named


def test_a_folder_without_scenes_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"assets_path: .*holds no scenes.*install\.sh embodied --env libero"):
        find_assets(str(tmp_path))


def test_versions_say_whose_assets_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda package: f"{package}-1")
    folder = assets(tmp_path / "assets")
    found = libero_versions(str(folder))
    assert found["assets"] == "published"
    assert found["robosuite"] == "robosuite-1"
    assert set(found) == {"mujoco", "robosuite", "bddl", "hf-libero", "assets", "assets_sha256"}
    (folder / "STANDINS.txt").write_text("bowl.msh\n\nbasket.msh\n", encoding="utf-8")
    assert libero_versions(str(folder))["assets"] == "stand-ins (2)"


def test_versions_say_what_the_assets_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda package: f"{package}-1")
    folder = assets(tmp_path / "assets")
    (folder / "scenes" / "table.xml").write_text("<one/>", encoding="utf-8")
    first = libero_versions(str(folder))["assets_sha256"]
    (folder / "scenes" / "table.xml").write_text("<two/>", encoding="utf-8")
    assert libero_versions(str(folder))["assets_sha256"] != first
