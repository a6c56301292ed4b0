"""The page on the installed package, typed word for word: an empty environment, the wheel, and no clone.

Needs the network, as pip does, and about ten minutes. Both languages show the same commands (``test_pages.py``).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import pytest
from documents import ROOT, SOURCES, snippets

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
PAGE = SOURCES["en"] / "start" / "installed.md"


def build_wheel(folder: Path) -> None:
    """Do what the page's first command does, in a copy of the repository that has none of its other files."""
    source = folder / "clone"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("rlinf", "examples"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder / "dist")]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    shutil.rmtree(source)


def test_the_page_on_the_installed_package(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="needs hatchling; run: bash requirements/install.sh test")
    build_wheel(tmp_path)
    # The build of PyTorch that this environment has, as a machine without a GPU needs it.
    (tmp_path / "constraints.txt").write_text(f"torch=={metadata.version('torch')}\n")
    bash = [snippet.text for snippet in snippets(PAGE, "bash")]
    (python,) = (snippet.text for snippet in snippets(PAGE, "python"))
    (tmp_path / "policy.py").write_text(python)
    assert bash[0].strip() == "pip wheel --no-deps --wheel-dir dist ."
    install, run, sweep = bash[1:]
    ray_folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")
    try:
        done = subprocess.run(
            ["bash", "-e", "-c", "\n".join([install, run, "python policy.py | tee episode.txt", sweep])],
            cwd=tmp_path,
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RLINF"))},
                "PIP_CONSTRAINT": str(tmp_path / "constraints.txt"),
                "RAY_TMPDIR": ray_folder,
                "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]),
            },
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        shutil.rmtree(ray_folder, ignore_errors=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    assert float((tmp_path / "episode.txt").read_text()) > 400
    evaluations = list((tmp_path / "results" / "gym_cartpole_ppo_mlp" / "eval_only").iterdir())
    assert len(evaluations) == 1
    table = [line for line in done.stdout.splitlines() if line.startswith("all ")]
    assert len(table) == 1
    assert table[0].split()[1] == "3"
    assert "±" in table[0]
    points = json.loads((tmp_path / "results" / "gym_cartpole_ppo_mlp_sweep" / "sweep.json").read_text())
    assert [point["choice"] for point in points] == [[f"actor.seed={seed}"] for seed in (1, 2, 3)]
