"""Scripts in a Python without what they need say how to get it, in place of a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SCRIPTS = [
    EXAMPLES / "agents" / "main_agents.py",
    *(
        path
        for folder in ("embodiment", "reasoning", "reward", "sft")
        for path in sorted((EXAMPLES / folder).glob("*.py"))
    ),
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_foreign_python_is_told_what_to_install(script: Path, tmp_path: Path) -> None:
    # -S and -E leave the standard library alone: no site-packages, no PYTHONPATH.
    command = [sys.executable, "-S", "-E", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith(f"Error: {sys.executable} lacks rlinf, torch")
    assert len(done.stderr.splitlines()) == 3
    target = "reason" if script.parent.name in {"agents", "reasoning", "sft"} else "embodied"
    assert f"bash requirements/install.sh {target}" in done.stderr
    assert "source .venv/bin/activate" in done.stderr
