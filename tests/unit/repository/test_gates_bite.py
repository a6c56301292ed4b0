"""Each quality gate is shown one fault in a copy of the project and must name it; without the fault it must pass."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from repository_tree import PACKAGE, ROOT

BIN = Path(sys.executable).parent
CLEAN = '"""A module in order."""\n\nANSWER: int = 42\n'


@dataclass(frozen=True)
class Fault:
    """A file with one fault.

    Attributes:
        path: Where in the copy it is planted.
        text: Its content.
        command: The gate.
        message: What the gate must say about it.
    """

    path: str
    text: str
    command: tuple[str, ...]
    message: str


RUFF = ("ruff", "check", "--no-cache", ".")
FORMAT = ("ruff", "format", "--no-cache", "--check", ".")
MYPY = ("mypy", "--cache-dir", "mypy-cache")
IMPORTS = ("lint-imports", "--no-cache")
PYTEST = ("pytest", "-p", "no:cacheprovider")

MODULE = "rlinf/utils/fault.py"
TEST = "tests/test_fault.py"
DOC = '"""A module with a fault."""\n\n'
WRONG_ARGS = '    """Double.\n\n    Args:\n        b: A number.\n    """\n'
BROAD_EXCEPT = "try:\n    ANSWER = 1 / 0\nexcept Exception:\n    ANSWER = 0\n"
MANY_BRANCHES = "".join(f"    if a == {i}:\n        a += {i}\n" for i in range(13))
LATE_IMPORT = '\ndef f() -> None:\n    """Import late."""\n    import rlinf.scheduler\n'
TYPE_IMPORT = "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    import rlinf.workers\n"
UNKNOWN_MARKER = "import pytest\n\n\n@pytest.mark.gpus\ndef test_it() -> None:\n    assert True\n"

FAULTS = {
    "unused import": Fault(MODULE, DOC + "import os\n", RUFF, "unused-import"),
    "no docstring": Fault(
        MODULE, DOC + "\ndef public() -> None:\n    return None\n", RUFF, "undocumented-public-function"
    ),
    "docstring of another parameter": Fault(
        MODULE,
        f"{DOC}\ndef public(a: int) -> int:\n{WRONG_ARGS}    return 2 * a\n",
        RUFF,
        "docstring-extraneous-parameter",
    ),
    "print": Fault(MODULE, DOC + 'print("hello")\n', RUFF, "print"),
    "broad except": Fault(MODULE, DOC + BROAD_EXCEPT, RUFF, "blind-except"),
    "too complex": Fault(
        MODULE,
        f'{DOC}\ndef public(a: int) -> int:\n    """Count."""\n{MANY_BRANCHES}    return a\n',
        RUFF,
        "complex-structure",
    ),
    "unformatted": Fault(MODULE, DOC + "ANSWER   =  1\n", FORMAT, "would be reformatted"),
    "type error": Fault(MODULE, DOC + 'ANSWER: int = "42"\n', MYPY, "Incompatible types"),
    "untyped function": Fault(
        MODULE, DOC + '\ndef public(a):\n    """Return it."""\n    return a\n', MYPY, "no-untyped-def"
    ),
    "import from a lower layer": Fault(
        MODULE, DOC + "from rlinf import runners\n", IMPORTS, "rlinf.utils.fault -> rlinf.runners"
    ),
    "late import from a lower layer": Fault(
        "rlinf/placement/fault.py", DOC + LATE_IMPORT, IMPORTS, "rlinf.placement.fault -> rlinf.scheduler"
    ),
    "import for types from a lower layer": Fault(
        "rlinf/data/fault.py", DOC + TYPE_IMPORT, IMPORTS, "rlinf.data.fault -> rlinf.workers"
    ),
    "import from a room on the same line": Fault(
        "rlinf/models/fault.py", DOC + "import rlinf.envs\n", IMPORTS, "rlinf.models.fault -> rlinf.envs"
    ),
    "Ray above the scheduler": Fault(
        "rlinf/algorithms/fault.py", DOC + "import ray\n", IMPORTS, "rlinf.algorithms.fault -> ray"
    ),
    "torch in the configuration": Fault(
        "rlinf/config/fault.py", DOC + "import torch\n", IMPORTS, "rlinf.config.fault -> torch"
    ),
    "a package without a layer": Fault("rlinf/misc/__init__.py", DOC, IMPORTS, "rlinf.misc"),
    "annotation of a test": Fault(
        TEST, "def made() -> int:\n    return 'two'\n", MYPY, "Incompatible return value type"
    ),
    "argument that a benchmark's call does not have": Fault(
        "benchmarks/speed.py", "def run(turns: int) -> None:\n    print(turns)\n\n\nrun(turn=3)\n", MYPY, "call-arg"
    ),
    "failing test": Fault(TEST, "def test_it() -> None:\n    assert False\n", PYTEST, "1 failed"),
    "unknown marker": Fault(TEST, UNKNOWN_MARKER, PYTEST, "not found in `markers`"),
}


def run_gate(command: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1"}
    program = [str(BIN / command[0]), *command[1:]]
    return subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a project with our settings and, in the place of each of our modules, an empty one."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for module in PACKAGE.rglob("*.py"):
        place = tmp_path / module.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(CLEAN, encoding="utf-8")
    (tmp_path / "evaluations").mkdir()
    (tmp_path / "evaluations" / "summary.py").write_text(CLEAN, encoding="utf-8")
    for folder, name in (("tests", "test_clean"), ("benchmarks", "speed"), ("toolkits", "tool")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.py").write_text("def test_it() -> None:\n    assert True\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("name", list(FAULTS))
def test_a_fault_is_caught(name: str, copy: Path) -> None:
    fault = FAULTS[name]
    planted = copy / fault.path
    planted.parent.mkdir(exist_ok=True)
    planted.write_text(fault.text, encoding="utf-8")

    run = run_gate(fault.command, copy)

    output = " ".join((run.stdout + run.stderr).split())
    assert run.returncode != 0, output
    assert fault.message in output


def test_an_import_circle_is_caught(copy: Path) -> None:
    late = LATE_IMPORT.replace("rlinf.scheduler", "rlinf.utils.second")
    (copy / "rlinf/utils/first.py").write_text(DOC + late, encoding="utf-8")
    types = TYPE_IMPORT.replace("rlinf.workers", "rlinf.utils.first")
    (copy / "rlinf/utils/second.py").write_text(DOC + types, encoding="utf-8")

    run = run_gate(IMPORTS, copy)

    assert run.returncode != 0
    assert "No cycles are allowed in rlinf.utils" in run.stdout


@pytest.mark.parametrize("command", [RUFF, FORMAT, MYPY, IMPORTS, PYTEST])
def test_a_clean_project_passes(command: tuple[str, ...], copy: Path) -> None:
    run = run_gate(command, copy)
    assert run.returncode == 0, run.stdout + run.stderr
