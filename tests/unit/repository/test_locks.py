"""The lock files: one exact version of what a target needs, the device's build of PyTorch, and no package index."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from repository_tree import ROOT

FOLDER = ROOT / "requirements" / "lock"
LOCKS = sorted(FOLDER.glob("*.txt"))
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
by_name = pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)


def lines(lock: Path) -> list[str]:
    return [line for line in lock.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]


def on(python: str) -> dict[str, str]:
    """Return what markers ask for, of a version of Python on Linux."""
    environment = {"python_version": python, "python_full_version": f"{python}.5", "sys_platform": "linux"}
    return environment | {"platform_machine": "x86_64", "platform_system": "Linux", "implementation_name": "cpython"}


def versions(lock: Path, python: str) -> list[tuple[str, str]]:
    """Return the (name, version) pairs that hold for a version of Python on Linux."""
    wanted = [Requirement(line) for line in lines(lock)]
    return [
        (canonicalize_name(each.name), str(each.specifier).removeprefix("=="))
        for each in wanted
        if each.marker is None or each.marker.evaluate(on(python))
    ]


def declared(*tables: str) -> list[Requirement]:
    """Return what lists of ``pyproject.toml`` ask for, without the references to other extras."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = []
    for table in tables:
        listed = re.search(rf"^{re.escape(table)} = \[(.*?)\]$", text, flags=re.MULTILINE | re.DOTALL)
        assert listed is not None, table
        found += [Requirement(each) for each in re.findall(r'"([^"]+)"', listed.group(1))]
    return [each for each in found if each.name != "rlinf"]


def arguments_of(lock: Path) -> str:
    """Return the arguments of install.sh that a lock file is for."""
    return lock.read_text(encoding="utf-8").splitlines()[1].split("install.sh ")[1].removesuffix(" --locked")


def dry_run(arguments: str) -> dict[str, str]:
    command = ["bash", "requirements/install.sh", *shlex.split(arguments), "--dry-run"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return dict(line.split(": ", 1) for line in told.splitlines())


def test_the_files_are_those_that_the_script_makes() -> None:
    script = (ROOT / "requirements" / "make_locks.sh").read_text(encoding="utf-8")
    targets = re.findall(r'^  "(.*)"$', script.split("LOCKS=(")[1].split("\n)")[0], flags=re.MULTILINE)
    assert {dry_run(arguments)["lock"] for arguments in targets} == {path.name for path in LOCKS}


@by_name
def test_a_lock_holds_exact_versions_and_names_no_index(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    assert "://" not in text
    assert [
        line for line in lines(lock) if not re.match(r"[A-Za-z0-9._-]+(\[[\w,-]+\])?==[\w.+!]+( ; .+)?$", line)
    ] == []


@by_name
@pytest.mark.parametrize("python", PYTHONS)
def test_each_package_has_one_version(lock: Path, python: str) -> None:
    count = Counter(name for name, _ in versions(lock, python))
    assert [name for name, times in count.items() if times > 1] == []
    assert "torch" in count or lock.name.startswith("docs")


@by_name
def test_pytorch_is_the_build_of_the_device(lock: Path) -> None:
    wanted = dry_run(arguments_of(lock))["torch"]
    held = dict(versions(lock, "3.11"))
    if lock.name.endswith(".cpu.txt"):
        assert held["torch"] == f"{wanted}+cpu"
        assert [name for name in held if name.startswith(("nvidia-", "cuda-"))] == []
    else:
        assert held["torch"] == wanted
        assert [name for name in held if name.startswith("nvidia-")]


@by_name
@pytest.mark.parametrize("python", PYTHONS[:3])
def test_a_lock_holds_what_the_target_asks_for(lock: Path, python: str) -> None:
    held = dict(versions(lock, python))
    extras = dry_run(f"{arguments_of(lock)} --data --dashboard")["extras"].split(",")
    assert "data" in extras
    for wanted in declared("dependencies", *extras):
        if wanted.marker is not None and not wanted.marker.evaluate(on(python)):
            continue
        version = held[canonicalize_name(wanted.name)].partition("+")[0]
        assert wanted.specifier.contains(version, prereleases=True), wanted


def test_sglang_on_a_cpu_is_held_with_what_it_imports() -> None:
    held = dict(versions(FOLDER / "reason-sglang.cpu.txt", "3.11"))
    for name in ("engine", "needs"):
        text = (ROOT / "requirements" / "sglang_cpu" / f"{name}.txt").read_text(encoding="utf-8")
        wanted = [Requirement(line) for line in text.splitlines() if line and not line.startswith("#")]
        assert [str(each) for each in wanted if not each.specifier.contains(held[canonicalize_name(each.name)])] == []


def test_the_kubernetes_templates_name_the_ray_that_is_locked() -> None:
    ray = dict(versions(FOLDER / "embodied-metaworld.cpu.txt", "3.12"))["ray"]
    for path in (ROOT / "ray_utils" / "kuberay").glob("*.yaml"):
        assert f"rayVersion: {ray}\n" in path.read_text(encoding="utf-8")
