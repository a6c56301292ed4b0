"""What an import may load: the package root nothing heavy, configuration and placement neither torch nor Ray."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from repository_tree import PACKAGE, ROOT

HEAVY = {"torch", "ray", "numpy", "omegaconf", "hydra", "gymnasium", "pydantic", "mujoco", "metaworld", "zmq", "sympy"}


SIMULATORS_AND_ENGINES = {"torch", "ray", "gymnasium", "mujoco", "metaworld"}
LIST_PACKAGES = "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"


def loaded_by(statement: str) -> set[str]:
    """Return the heavy packages that a fresh interpreter has loaded after a statement."""
    code = f"import sys, json\n{statement}\n{LIST_PACKAGES}"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return HEAVY & set(json.loads(run.stdout.splitlines()[-1]))


def test_the_package_root_loads_nothing_heavy() -> None:
    assert loaded_by("import rlinf") == set()


@pytest.mark.parametrize("package", ["errors", "registry", "utils", "placement"])
def test_foundations_load_nothing_heavy(package: str) -> None:
    assert loaded_by(f"import rlinf.{package}") == set()


def test_configuration_needs_neither_torch_nor_ray() -> None:
    assert loaded_by("from rlinf.config import build_config, validate_cfg") & SIMULATORS_AND_ENGINES == set()


@pytest.mark.parametrize("module", ["env.env_worker", "rollout.rollout_worker", "actor.actor_worker"])
def test_importing_a_worker_loads_nothing_of_sharded_training(module: str) -> None:
    """It brings sympy, and takes half as long to import as torch itself; the driver imports the actor's module too."""
    assert "sympy" not in loaded_by(f"import rlinf.workers.{module}")


def test_what_every_worker_imports_before_its_class_is_light() -> None:
    of_a_worker = "from rlinf.scheduler import Channel, Worker, manager, shell; Channel, Worker"
    assert loaded_by(of_a_worker) & {"torch", "gymnasium", "sympy"} == set()


def test_a_heavy_import_is_noticed() -> None:
    assert "numpy" in loaded_by("import numpy")


@pytest.mark.parametrize(
    "package",
    [path.parent.name for path in sorted(PACKAGE.glob("*/__init__.py"))],
)
def test_naming_a_room_imports_none_of_what_it_exports(package: str) -> None:
    """Heavy exports are lazy, so that importing a package costs nothing until something of it is used."""
    assert loaded_by(f"import rlinf.{package}") & SIMULATORS_AND_ENGINES == set()
