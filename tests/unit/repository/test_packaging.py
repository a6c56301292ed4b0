"""What a wheel holds: the package, its recipes as resources, its command; nothing of tests or tools."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from repository_tree import PACKAGE, ROOT, relative


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of what goes into it, without a network."""
    pytest.importorskip("hatchling", reason="needs hatchling; run: bash requirements/install.sh test")
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("rlinf", "examples"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(target)]
    run = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return next(target.glob("*.whl"))


@pytest.mark.parametrize("kind", ["embodiment", "reasoning", "sft"])
def test_wheel_holds_every_module_and_recipe(wheel: Path, kind: str) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    modules = {relative(path) for path in PACKAGE.rglob("*.py")}
    config = ROOT / "examples" / kind / "config"
    recipes = {f"rlinf/recipes/{kind}/{path.relative_to(config).as_posix()}" for path in config.rglob("*.yaml")}
    assert modules - held == set()
    assert recipes
    assert recipes - held == set()


def test_wheel_holds_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"rlinf", "rlinf-0.1.0.dist-info"}
    assert [name for name in names if "__pycache__" in name or Path(name).name.startswith("test_")] == []


def test_wheel_declares_the_command(wheel: Path) -> None:
    entry_points = configparser.ConfigParser()
    entry_points.read_string(zipfile.ZipFile(wheel).read("rlinf-0.1.0.dist-info/entry_points.txt").decode())
    assert entry_points["console_scripts"]["rlinf"] == "rlinf.cli.main:main"


def test_recipes_are_found_in_an_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    """Far from the checkout, the packaged copies answer, as resources and through the recipe search."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = (
        "from importlib.resources import files\n"
        "print((files('rlinf.recipes') / 'embodiment' / 'gym_cartpole_ppo_mlp.yaml').is_file())\n"
        "from rlinf.config.recipes import list_recipes\n"
        "print(list_recipes()['gym_cartpole_ppo_mlp'])\n"
    )
    environment = {"PYTHONPATH": str(tmp_path / "site"), "PATH": "/usr/bin:/bin"}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    is_resource, path = run.stdout.splitlines()
    assert is_resource == "True"
    assert Path(path).is_relative_to(tmp_path / "site" / "rlinf" / "recipes")
