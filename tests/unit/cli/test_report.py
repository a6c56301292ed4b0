"""``rlinf report`` writes a page."""

from pathlib import Path

import pytest

from rlinf.cli.main import main
from tests.unit.telemetry.report.report_runs import embedded, make_run


def test_the_page_lies_in_the_run_s_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_run(tmp_path)
    assert main(["report", str(folder)]) == 0
    assert str(folder / "report.html") in capsys.readouterr().out
    assert embedded((folder / "report.html").read_text(encoding="utf-8"))["runs"][0]["step"] == 4


def test_several_runs_go_to_the_working_folder_or_where_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folders = [str(make_run(tmp_path / "runs", name)) for name in "ab"]
    assert main(["report", *folders]) == 0
    assert main(["report", str(tmp_path / "runs"), "--output", "other.html"]) == 0
    for name in ("report.html", "other.html"):
        page = (tmp_path / name).read_text(encoding="utf-8")
        assert [run["name"] for run in embedded(page)["runs"]] == ["a", "b"]
    assert not (tmp_path / "runs" / "a" / "report.html").exists()


def test_a_folder_without_a_run_fails_cleanly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 1
    assert "holds no run" in capsys.readouterr().err


def test_a_page_into_a_folder_that_is_not_there_fails_cleanly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_run(tmp_path)
    assert main(["report", str(folder), "--output", str(tmp_path / "absent" / "x.html")]) == 1
    assert "--output" in capsys.readouterr().err
