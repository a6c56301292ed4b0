"""What tests cost is added up by area, over processes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from repository_tree import ROOT

from tests.areas import BUDGETS, LONGEST, AreaReport, cpu_seconds, place_of


def test_every_area_has_a_budget() -> None:
    tests = ROOT / "tests"
    areas = {f"unit/{path.parent.name}" for path in tests.glob("unit/*/*.py")} | {"docs", "e2e", "chaos"}
    assert areas - set(BUDGETS) == set()
    assert {area for area in BUDGETS if not (tests / area).is_dir()} == set()


def test_the_files_that_take_longest_come_first() -> None:
    assert [path for path in LONGEST if not (ROOT / path).is_file()] == []
    first, *_, last = LONGEST
    assert place_of(f"{first}::test_a") < place_of(f"{last}::test_b[1]") < place_of("tests/e2e/test_other.py::test_c")


def test_what_a_child_has_spent_counts_also_when_it_has_ended() -> None:
    before = cpu_seconds()
    subprocess.run([sys.executable, "-c", "while __import__('time').process_time() < 0.3: pass"], check=True)
    assert cpu_seconds() >= before + 0.2
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        deadline = time.monotonic() + 60
        while cpu_seconds() < before + 0.5 and time.monotonic() < deadline:
            time.sleep(0.05)
        child.kill()
    assert cpu_seconds() >= before + 0.5


def test_processes_send_what_they_have_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = iter([2.0, 5.0, 4.0])
    monkeypatch.setattr("tests.areas.cpu_seconds", lambda: next(spent))
    of_process, report = AreaReport(), AreaReport()
    for area in ("docs", "e2e", "docs"):
        of_process.spend(area)
    session = SimpleNamespace(config=SimpleNamespace(workeroutput={}))
    of_process.pytest_sessionfinish(cast("pytest.Session", session))
    for node in (session.config, session.config, SimpleNamespace()):
        report.pytest_testnodedown(node)
    assert report.cpu_seconds == {"docs": 4.0, "e2e": 6.0}


def test_the_report_has_a_row_for_each_area(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "tests/unit/placement", "--areas", "-n", "1", "-k", "grammar"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("unit/placement ")]
    assert row.split()[2] == "tests"
    assert float(row.split()[5]) > 0
    assert f"of {BUDGETS['unit/placement']:>4} CPU s" in row
