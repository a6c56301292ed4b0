"""The planted faults still apply to the sources, and their runner tells killed from surviving ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from repository_tree import ROOT

from tests.mutation.fault import Fault
from tests.mutation.pitfalls import AGENTS, MODEL_PARALLEL, Pitfall
from tests.mutation.table import load, problems, select

SOURCE = '"""A module."""\n\n\ndef double(a: int) -> int:\n    return 2 * a\n\n\n'
SOURCE += "def twice(a: int) -> int:\n    return a + a\n"
TESTS = "from rlinf.number import double, twice\n\n\ndef test_double() -> None:\n    assert double(3) == 6\n\n\n"
TESTS += "def test_twice() -> None:\n    assert twice(0) == 0\n"
TABLE = '''"""Faults of the small project."""

from tests.mutation.fault import Fault

DOUBLE = ("tests/test_number.py::test_double",)
FAULTS: list[Fault] = [
    Fault("rlinf/number.py", "2 * a", "3 * a", DOUBLE, "trebles"),
    Fault("rlinf/number.py", "a + a", "a - a", ("tests/test_number.py",), "cancels"),
]
'''


def test_every_row_applies() -> None:
    wrong = {
        f"{row.area}, {row.fault.file}: {row.fault.what}": found
        for row in load()
        if (found := list(problems(row.fault)))
    }
    assert not wrong


def test_no_table_lists_a_fault_twice() -> None:
    edits = [(row.area, row.fault.file, row.fault.before, row.fault.after) for row in load()]
    assert len(edits) == len(set(edits))


@pytest.mark.parametrize(("pitfalls", "count"), [(MODEL_PARALLEL, 24), (AGENTS, 15)])
def test_every_pitfall_is_planted(pitfalls: list[Pitfall], count: int) -> None:
    rows = Counter(f"{row.area}: {row.fault.what}" for row in load())
    assert len(pitfalls) == count
    for pitfall in pitfalls:
        assert pitfall.faults, pitfall.what
        assert {fault: rows[fault] for fault in pitfall.faults} == dict.fromkeys(pitfall.faults, 1), pitfall.what


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a small repository with a fault that its tests notice and one that they do not."""
    files = {
        "rlinf/__init__.py": "",
        "rlinf/number.py": SOURCE,
        "tests/test_number.py": TESTS,
        "tests/mutation/faults/number.py": TABLE,
        "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\n',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.mutation.run", "--root", str(project), *arguments, "--preload", "pytest"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_runner_tells_a_killed_fault_from_a_survivor(project: Path) -> None:
    ended = run(project, "--minimum", "0.6")

    assert ended.returncode == 1, ended.stdout + ended.stderr
    result = json.loads((project / "results" / "mutation.json").read_text(encoding="utf-8"))
    assert {fault["what"]: fault["verdict"] for fault in result["faults"]} == {
        "trebles": "killed",
        "cancels": "survived",
    }
    assert result["areas"]["number"]["share_killed"] == 0.5
    assert "SURVIVED [number] rlinf/number.py: cancels" in ended.stdout
    assert "-    return a + a\n+    return a - a" in ended.stdout
    assert (project / "rlinf" / "number.py").read_text(encoding="utf-8") == SOURCE


def test_an_area_is_enough_and_few_survivors_are_allowed(project: Path) -> None:
    assert run(project, "num", "--minimum", "0.5").returncode == 0
    unknown = run(project, "words")
    assert unknown.returncode == 2
    assert "no fault in words; areas: ['number']" in unknown.stderr


def test_a_row_that_says_nothing_about_its_tests_is_an_error(project: Path) -> None:
    table = project / "tests" / "mutation" / "faults" / "number.py"
    more = """
FAULTS = [
    Fault("rlinf/number.py", "import_me_not = 1", "", DOUBLE, "is not there"),
    Fault("rlinf/number.py", '\"\"\"A module.\"\"\"', "import rlinf.nothing", DOUBLE, "does not import"),
    Fault("rlinf/number.py", "2 * a", "5 * a", ("tests/test_broken.py::test_broken",), "baseline fails"),
]
"""
    table.write_text(TABLE + more, encoding="utf-8")
    (project / "tests" / "test_broken.py").write_text("def test_broken() -> None:\n    assert 0\n", encoding="utf-8")

    ended = run(project, "--minimum", "0")

    assert ended.returncode == 1, ended.stdout + ended.stderr
    result = json.loads((project / "results" / "mutation.json").read_text(encoding="utf-8"))
    assert {fault["what"]: (fault["verdict"], fault["reason"]) for fault in result["faults"]} == {
        "is not there": ("error", "'before' occurs 0 times in rlinf/number.py, not once"),
        "does not import": ("error", "the tests cannot be collected"),
        "baseline fails": ("error", "tests/test_broken.py fails without the fault (exit code 1)"),
    }


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (Fault("rlinf/absent.py", "a", "b", ("tests/test_number.py",), ""), "rlinf/absent.py does not exist"),
        (Fault("rlinf/number.py", "-> int", "", ("tests/test_number.py",), ""), "occurs 2 times"),
        (Fault("rlinf/number.py", "2 * a", "2 *", ("tests/test_number.py",), ""), "does not compile"),
        (Fault("rlinf/number.py", "2 * a", "2 *  a", ("tests/test_number.py",), ""), "changes nothing"),
        (Fault("rlinf/number.py", "2 * a", "3 * a", (), ""), "names no test"),
        (Fault("rlinf/number.py", "2 * a", "3 * a", ("tests/test_x.py",), ""), "no such test: tests/test_x.py"),
        (Fault("rlinf/number.py", "2 * a", "3 * a", ("tests/test_number.py::test_x",), ""), "no such test"),
    ],
)
def test_a_row_that_does_not_apply_is_named(project: Path, fault: Fault, problem: str) -> None:
    (found,) = problems(fault, project)
    assert problem in found


def test_areas_are_prefixes_of_tables_or_paths(project: Path) -> None:
    rows = load(project)
    assert select(rows, []) == select(rows, ["num"]) == select(rows, ["rlinf/number"]) == rows
    assert select(rows, ["rlinf/words", "letters"]) == []
