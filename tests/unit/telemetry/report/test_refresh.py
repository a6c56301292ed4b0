"""How often the page of a run that goes on is written, and what happens if it cannot be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlinf.telemetry.report import RunReport
from rlinf.telemetry.report import refresh as refresh_module
from rlinf.utils.logging import get_logger
from tests.unit.telemetry.report.report_runs import Ticks, embedded, make_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_run(tmp_path)


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[tuple[str, str]]]:
    monkeypatch.setattr(get_logger(), "propagate", True)
    caplog.set_level("INFO", logger="rlinf")
    return lambda: [(record.levelname, record.getMessage()) for record in caplog.records]


def test_the_page_is_written_once_a_minute_at_most(folder: Path) -> None:
    clock = Ticks()
    report = RunReport(folder, is_wanted=True, clock=clock)
    report.refresh()
    assert not report.path.exists()
    clock.now = 60.0
    report.refresh()
    assert embedded(report.path.read_text(encoding="utf-8"))["runs"][0]["name"] == "cart"
    report.path.unlink()
    clock.now = 119.0
    report.refresh()
    assert not report.path.exists()
    clock.now = 120.0
    report.refresh()
    assert report.path.exists()


def test_a_page_that_takes_long_is_written_less_often(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Ticks()
    report = RunReport(folder, is_wanted=True, clock=clock)
    times = []

    def slow(runs: Any, path: Path, **keys: object) -> None:
        times.append(clock.now)
        clock.now += 3.0

    monkeypatch.setattr(refresh_module, "write_report", slow)
    for _ in range(100):
        clock.now += 10.0
        report.refresh()
    assert times == [60.0, 363.0, 666.0, 969.0]


def test_a_page_that_cannot_be_written_is_warned_of_once(
    folder: Path, lines: Callable[[], list[tuple[str, str]]]
) -> None:
    report = RunReport(folder, is_wanted=True)
    report.path.mkdir()
    report.write()
    report.write()
    ((level, text),) = lines()
    assert level == "WARNING"
    assert str(report.path) in text
    assert "runner.logger.report=false" in text


def test_where_it_is_not_wanted_nothing_is_written(folder: Path, lines: Callable[[], list[tuple[str, str]]]) -> None:
    report = RunReport(folder, is_wanted=False)
    report.write()
    assert report.path is None
    assert not (folder / "report.html").exists()
    assert lines() == []


def test_without_plotly_one_line_says_how_to_get_it(
    folder: Path, lines: Callable[[], list[tuple[str, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refresh_module.importlib.util, "find_spec", lambda name: None)
    report = RunReport(folder, is_wanted=True)
    report.write()
    ((level, text),) = lines()
    assert level == "INFO"
    assert "pip install 'rlinf[report]'" in text
    assert not (folder / "report.html").exists()


def test_a_browser_reads_the_page_again_until_the_run_has_ended(folder: Path) -> None:
    clock = Ticks()
    report = RunReport(folder, is_wanted=True, clock=clock)
    clock.now = 60.0
    report.refresh()
    assert report.path is not None
    assert '<meta http-equiv="refresh" content="60">' in report.path.read_text(encoding="utf-8")
    report.write()
    assert 'http-equiv="refresh"' not in report.path.read_text(encoding="utf-8")
