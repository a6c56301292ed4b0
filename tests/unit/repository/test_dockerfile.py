"""The images: their targets, each made by the installer with arguments that it knows; the linter finds nothing."""

from __future__ import annotations

import fnmatch
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from repository_tree import ROOT

DOCKERFILE = ROOT / "docker" / "Dockerfile"
HADOLINT = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
TEXT = DOCKERFILE.read_text(encoding="utf-8").replace("\\\n", " ")
TARGETS = {"base", "embodied", "maniskill", "reason-vllm", "reason-sglang", "docs"}


def stages() -> dict[str, tuple[str, str]]:
    """Return for each stage what it is built on and its text."""
    found = re.findall(r"^FROM (\S+) AS (\S+)\n(.*?)(?=^FROM |\Z)", TEXT, flags=re.MULTILINE | re.DOTALL)
    return {name: (parent, body) for parent, name, body in found}


def installations(name: str) -> list[list[str]]:
    """Return the arguments of each call of the installer in a stage."""
    calls = re.findall(r"requirements/install\.sh ([^&\n]+)", stages()[name][1])
    return [shlex.split(call) for call in calls]


def lint(path: Path) -> subprocess.CompletedProcess[str]:
    assert HADOLINT is not None
    return subprocess.run([HADOLINT, str(path)], capture_output=True, text=True, check=False)


def test_every_target_is_there_and_stands_on_one_before_it() -> None:
    names = list(stages())
    assert set(names) - {"system"} == TARGETS
    for index, name in enumerate(names):
        parent = stages()[name][0]
        assert parent == "${BASE}" if index == 0 else parent in names[:index]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("target", sorted(TARGETS))
def test_a_target_installs_what_the_installer_knows(target: str, device: str) -> None:
    calls = installations(target)
    assert calls
    for arguments in calls:
        filled = [word.replace("${DEVICE}", device).replace("${RLINF_VENV}", "venv") for word in arguments]
        run = subprocess.run(
            ["bash", "requirements/install.sh", *filled, "--dry-run"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        assert f"{device}.txt" in run.stdout
        # Without them KubeRay can neither watch a pod nor submit a job.
        assert ("dashboard" in run.stdout) == (target != "docs")


def test_packages_come_by_the_installer_alone() -> None:
    assert "pip install" not in TEXT
    assert [name for name in TARGETS if "apt-get install" in stages()[name][1]] == []


def test_what_is_left_out_of_the_image_is_not_needed_in_it() -> None:
    patterns = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    left_out = [pattern for pattern in patterns if not pattern.startswith("!")]
    needed = ["pyproject.toml", "README.md", "LICENSE", "rlinf", "examples", "requirements", "ray_utils", "benchmarks"]
    assert [name for name in needed if any(fnmatch.fnmatch(name, pattern) for pattern in left_out)] == []
    assert {".git", ".venv*", "results"} <= set(left_out)


def test_the_images_of_the_kubernetes_templates_are_targets_and_in_the_same_place() -> None:
    for path in (ROOT / "ray_utils" / "kuberay").glob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        assert yaml.safe_load(text)
        assert set(re.findall(r"image: rlinf:(\S+)", text)) <= TARGETS
        assert set(re.findall(r"/opt/rlinf\b", text)) == set(re.findall(r"^WORKDIR (\S+)", TEXT, flags=re.MULTILINE))


@pytest.mark.skipif(HADOLINT is None, reason="needs hadolint; run: bash requirements/install.sh test")
def test_the_linter_finds_nothing() -> None:
    done = lint(DOCKERFILE)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(HADOLINT is None, reason="needs hadolint; run: bash requirements/install.sh test")
def test_the_linter_finds_a_planted_fault(tmp_path: Path) -> None:
    faulty = tmp_path / "Dockerfile"
    faulty.write_text(DOCKERFILE.read_text(encoding="utf-8") + "\nRUN cd /tmp\n", encoding="utf-8")
    assert "DL3003" in lint(faulty).stdout
