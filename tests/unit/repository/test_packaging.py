"""What a wheel holds: the package, its recipes as resources, its command, and nothing else; and that it works."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib import metadata
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


@pytest.mark.parametrize("kind", ["agents", "embodiment", "reasoning", "sft"])
def test_wheel_holds_every_module_and_recipe(wheel: Path, kind: str) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    modules = {relative(path) for path in PACKAGE.rglob("*.py")}
    config = ROOT / "examples" / kind / "config"
    recipes = {f"rlinf/recipes/{kind}/{path.relative_to(config).as_posix()}" for path in config.rglob("*.yaml")}
    assert modules - held == set()
    assert recipes
    assert recipes - held == set()


def test_wheel_holds_the_files_of_pages(wheel: Path) -> None:
    assets = {relative(path) for path in (PACKAGE / "telemetry" / "report" / "assets").iterdir()}
    assert {Path(name).suffix for name in assets} == {".html", ".css", ".js"}
    assert assets - set(zipfile.ZipFile(wheel).namelist()) == set()


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


LIBRARY = """
from rlinf.config import load_recipe, validate_cfg
from rlinf.placement import plan_component

cfg = validate_cfg(load_recipe("gym_cartpole_ppo_mlp", ["cluster.cpu_slots_per_node=2"]))
print(cfg.algorithm.loss_type, [placement.local_hardware_ranks for placement in plan_component("0-1", [2])])
"""
WORKERS = """
from rlinf.scheduler import Cluster, Worker


class Greeter(Worker):
    def greet(self, whom):
        return f"{whom} from {self.worker_address}"


if __name__ == "__main__":
    with Cluster() as cluster:
        group = Greeter.create_group().launch(cluster, name="Greeters")
        print(group.greet("hello").wait()[0])
"""
TRAINING = """
import sys

from rlinf.config import load_recipe, validate_cfg
from rlinf.runners.launch import launch_embodied

if __name__ == "__main__":
    cfg = load_recipe("gym_cartpole_ppo_mlp", ["runner.max_epochs=2", f"runner.logger.log_path={sys.argv[1]}"])
    print(sorted(launch_embodied(validate_cfg(cfg))))
"""


class Installed:
    """An environment that holds the wheel, used from a folder that is not the checkout."""

    def __init__(self, folder: Path) -> None:
        self.environment, self.work = folder / "venv", folder / "elsewhere"
        self.work.mkdir(parents=True)
        venv.create(self.environment, with_pip=False)

    def install(self, *arguments: str) -> None:
        pip = [sys.executable, "-m", "pip", "--python", str(self.environment), "--disable-pip-version-check", "install"]
        done = subprocess.run([*pip, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]

    def borrow_packages(self) -> None:
        """Let the environment see the packages of this one; not the checkout, which a .pth file names here."""
        (site,) = self.environment.glob("lib/python*/site-packages")
        (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")

    def run(self, program: str, *arguments: str) -> str:
        variables = {"PATH": f"{self.environment / 'bin'}:/usr/bin:/bin", "HOME": str(self.work), "RLINF_PLAIN": "1"}
        done = subprocess.run(
            [str(self.environment / "bin" / program), *arguments],
            cwd=self.work,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
        return done.stdout

    def run_script(self, text: str, *arguments: str) -> str:
        (self.work / "script.py").write_text(text, encoding="utf-8")
        return self.run("python", "script.py", *arguments)


def check_offline_use(installed: Installed) -> None:
    """Check what works without Ray, and that all of it is the wheel's."""
    where = Path(installed.run("python", "-c", "import rlinf; print(rlinf.__file__)").strip())
    assert where.is_relative_to(installed.environment)
    assert "gym_cartpole_ppo_mlp: valid" in installed.run("rlinf", "plan", "gym_cartpole_ppo_mlp")
    listed = {line.split()[0] for line in installed.run("rlinf", "list", "recipes").splitlines()}
    assert {"gym_cartpole_ppo_mlp", "tiny_math_grpo", "tiny_math_sft"} <= listed
    assert installed.run_script(LIBRARY).split("\n")[0] == "actor_critic [[0], [1]]"


def test_an_installed_wheel_works_far_from_the_checkout(wheel: Path, tmp_path: Path) -> None:
    installed = Installed(tmp_path)
    installed.install("--no-deps", "--no-index", str(wheel))
    installed.borrow_packages()
    check_offline_use(installed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_wheel_in_an_empty_environment_trains(wheel: Path, tmp_path: Path) -> None:
    """Only the wheel and what it declares are there; of PyTorch the build that this environment has."""
    installed = Installed(tmp_path)
    installed.install(f"torch=={metadata.version('torch')}", str(wheel))
    check_offline_use(installed)
    assert "hello from Greeters:0" in installed.run_script(WORKERS)
    metrics = installed.run_script(TRAINING, str(tmp_path / "results")).splitlines()[-1]
    assert "train/actor_loss" in metrics
    lines = (tmp_path / "results" / "gym_cartpole_ppo_mlp" / "metrics.jsonl").read_text(encoding="utf-8")
    assert '"step": 2' in lines
