"""A project folder in which commands of the documents can be run without changing the repository."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from documents import ROOT

LINKED = ("examples", "requirements", "ray_utils", "tests", "docs", "benchmarks", "toolkits", "rlinf", "pyproject.toml")
Run = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with the files of the repository and the commands ``rlinf`` and ``python``."""
    for name in LINKED:
        (tmp_path / name).symlink_to(ROOT / name)
    programs = tmp_path / "bin"
    programs.mkdir()
    write_program(programs / "python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    write_program(
        programs / "rlinf",
        f"#!{sys.executable}\nimport sys\nsys.path[:0] = [{str(ROOT)!r}, '.']\n"
        "from rlinf.cli.main import main\nsys.exit(main())\n",
    )
    # The environment is that of the tests.
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "activate").touch()
    return tmp_path


def write_program(path: Path, text: str) -> None:
    """Write a script that can be run."""
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def run(project: Path) -> Run:
    """Return a function that runs lines of bash in the project folder."""

    def start(lines: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(project / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
        variables = {"PATH": path, "RLINF_VENV": str(project / "no-venv"), "HOME": str(project), "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            ["bash", "-e", "-c", lines],
            cwd=project,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )

    return start
