"""What the tests of each area cost, next to what they may: a report, which fails nothing.

Budgets are seconds of processors, those of Ray and of all other processes that tests start included: on two idle cores
the suite takes a little more than half of their sum. What does not fit goes behind ``--slow`` with a reason.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Generator

import psutil
import pytest

BUDGETS = {
    "unit/agents": 30,
    "unit/algorithms": 10,
    "unit/api": 10,
    "unit/checkpoint": 20,
    "unit/cli": 40,
    "unit/config": 95,
    "unit/data": 12,
    "unit/envs": 105,
    "unit/examples": 50,
    "unit/hybrid_engines": 240,
    "unit/models": 135,
    "unit/placement": 5,
    "unit/repository": 110,
    "unit/runners": 48,
    "unit/scheduler": 138,
    "unit/telemetry": 30,
    "unit/utils": 20,
    "unit/workers": 220,
    "docs": 145,
    "e2e": 715,
    "chaos": 180,
}

# Files whose tests take longest, the longest first: several test processes begin with them, so that none ends alone.
LONGEST = {
    f"tests/{name}.py": place
    for place, name in enumerate(
        (
            "chaos/test_runner_recovery",
            "chaos/test_lost_services",
            "chaos/test_async_recovery",
            "chaos/test_given_up_waits",
            "chaos/test_worker_deaths",
            "chaos/test_node_deaths",
            "e2e/test_embodied_failures",
            "e2e/test_embodied_decoupled",
            "e2e/test_mishaps",
            "e2e/test_two_hosts",
            "e2e/test_reasoning_runs",
            "e2e/test_embodied_async",
            "e2e/test_embodied_two_nodes",
            "e2e/test_megatron_runs",
            "e2e/test_killed_runs",
            "e2e/test_embodied_extend",
            "e2e/test_text_learning",
            "e2e/test_embodied_runs",
            "e2e/test_sft_runs",
            "unit/hybrid_engines/train/test_fsdp_conformance",
            "unit/hybrid_engines/train/megatron/test_megatron_conformance",
        )
    )
}


class AreaReport:
    """Adds up what tests cost, by area, and prints it at the end; with several test processes, what each has sent."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.cpu_seconds: Counter[str] = Counter()
        self.tests: Counter[str] = Counter()
        self._spent = 0.0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """Count what has been spent when the last of several tests of one area ends: to look costs time, too."""
        result = yield
        area = area_of(item.nodeid)
        if nextitem is None or area_of(nextitem.nodeid) != area:
            self.spend(area)
        return result

    def spend(self, area: str) -> None:
        """Count for an area what processors have done since the last time."""
        before, self._spent = self._spent, cpu_seconds()
        self.cpu_seconds[area] += max(0.0, self._spent - before)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one phase of a test."""
        area = area_of(report.nodeid)
        self.seconds[area] += report.duration
        self.tests[area] += report.when == "call"

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send what this test process has spent to the one that started it."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["cpu_seconds"] = dict(self.cpu_seconds)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Receive what a test process has spent; one that has crashed sends nothing."""
        self.cpu_seconds.update(getattr(node, "workeroutput", {}).get("cpu_seconds", {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print a row for each area."""
        terminalreporter.section("areas: seconds that tests took, and seconds of processors, of their budgets")
        for area, seconds in sorted(self.seconds.items()):
            spent, budget = self.cpu_seconds[area], BUDGETS.get(area)
            mark = "" if budget is None or spent <= budget else "  over its budget"
            allowed = "-" if budget is None else str(budget)
            row = f"{area:24} {self.tests[area]:5} tests {seconds:7.0f} s {spent:7.0f} of {allowed:>4} CPU s{mark}"
            terminalreporter.write_line(row)


def cpu_seconds() -> float:
    """Return what this process, those that it started and those that have ended have used of processors, in seconds."""
    this = psutil.Process()
    total = 0.0
    for process in (this, *this.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def place_of(nodeid: str) -> int:
    """Return where among all files that of a test comes: the rest stays in its order, after those of ``LONGEST``."""
    return LONGEST.get(nodeid.partition("::")[0], len(LONGEST))


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
