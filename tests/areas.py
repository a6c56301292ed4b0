"""How long the tests of each area take, next to what they may take: a report, which fails nothing.

Seconds are added up over test processes, two on two idle cores; what does not fit goes behind ``--slow`` with a reason.
"""

from __future__ import annotations

from collections import Counter

import pytest

BUDGETS = {
    "unit/algorithms": 40,
    "unit/checkpoint": 20,
    "unit/cli": 90,
    "unit/config": 60,
    "unit/data": 40,
    "unit/envs": 150,
    "unit/examples": 60,
    "unit/hybrid_engines": 120,
    "unit/models": 60,
    "unit/placement": 20,
    "unit/repository": 120,
    "unit/runners": 60,
    "unit/scheduler": 300,
    "unit/telemetry": 60,
    "unit/utils": 20,
    "unit/workers": 120,
    "docs": 300,
    "e2e": 500,
    "chaos": 400,
}


class AreaReport:
    """Adds up the durations of tests by area, and prints them at the end."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.tests: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one phase of a test."""
        area = area_of(report.nodeid)
        self.seconds[area] += report.duration
        self.tests[area] += report.when == "call"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print a row for each area."""
        terminalreporter.section("areas: seconds of tests, of their budgets")
        for area, seconds in sorted(self.seconds.items()):
            budget = BUDGETS.get(area)
            mark = "" if budget is None or seconds <= budget else "  over its budget"
            allowed = "-" if budget is None else str(budget)
            terminalreporter.write_line(f"{area:24} {self.tests[area]:5} tests {seconds:7.0f} of {allowed:>4}{mark}")


def area_of(nodeid: str) -> str:
    """Return the folder whose budget a test uses.

    Args:
        nodeid: For example ``tests/unit/envs/wrappers/test_frame_stack.py::test_a``.

    Example:
        >>> area_of("tests/unit/envs/wrappers/test_frame_stack.py::test_a"), area_of("tests/e2e/test_b.py::test_b")
        ('unit/envs', 'e2e')
    """
    parts = nodeid.partition("::")[0].split("/")[1:-1]
    return "/".join(parts[:2] if parts[:1] == ["unit"] else parts[:1])
