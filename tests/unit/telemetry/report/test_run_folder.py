"""Which folders are runs, and what is read of a damaged one."""

from pathlib import Path

import pytest

from rlinf.errors import ReportError
from rlinf.telemetry.report import RunFolder, find_runs
from rlinf.telemetry.report.metric_table import read_metrics
from rlinf.telemetry.report.run_folder import read_records, spread
from tests.unit.telemetry.report.report_runs import make_run


def test_a_run_is_found_by_its_folder_and_from_above(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "sweep", "a")
    (run,) = find_runs([folder])
    assert (run.path, run.name) == (folder, "a")
    assert run.config["runner"]["logger"]["experiment_name"] == "a"
    assert [found.path for found in find_runs([tmp_path, folder])] == [folder]


def test_runs_of_one_name_are_told_apart_by_their_paths(tmp_path: Path) -> None:
    for parent in ("old", "new"):
        make_run(tmp_path / parent, "cart")
    make_run(tmp_path / "new", "other")
    assert [run.name for run in find_runs([tmp_path])] == ["new/cart", "other", "old/cart"]


@pytest.mark.parametrize(("name", "reason"), [("absent", "is not a folder"), ("empty", "holds no run")])
def test_a_path_without_a_run_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ReportError, match=rf"LOG_PATH.*{name}.*{reason}.*metrics\.jsonl"):
        find_runs([tmp_path / name])


def test_what_cannot_be_read_is_said_and_the_rest_is_kept(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    (folder / "run.json").write_text("[1, 2")
    (folder / "config.yaml").write_text("a: [")
    run = RunFolder.read(folder)
    assert (run.name, run.launches, run.config) == ("cart", [], None)
    assert [problem.split(" ")[0] for problem in run.problems] == ["run.json", "config.yaml"]


def test_a_torn_last_line_is_no_damage_but_others_are_counted(tmp_path: Path) -> None:
    folder = make_run(tmp_path, steps=2)
    path = folder / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    bad = [b"\xff\xfe\n", b"[1]\n", b'{"step": 1}\n', b'{"step": -1, "time_seconds": 1}\n', b"\n"]
    path.write_bytes(b"".join([lines[0], *bad, *lines[1:], lines[2][:20]]))
    table = read_metrics(path)
    assert list(table.steps) == [0, 1, 2]
    assert table.num_unreadable == 4
    assert list(table.columns["env/return"].rows) == [1, 2]


def test_a_run_that_has_recorded_nothing_is_empty(tmp_path: Path) -> None:
    assert list(read_metrics(tmp_path / "metrics.jsonl").steps) == []
    assert read_records(tmp_path / "samples.jsonl").rows == []


def test_of_a_large_file_the_beginning_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n' * 100)
    records = read_records(path, max_bytes=50)
    assert 0 < len(records.rows) < 10
    assert not records.is_whole
    records = read_records(path, max_rows=3)
    assert (len(records.rows), records.num_lines, records.is_whole) == (3, 100, True)
    assert len(read_records(path).rows) == 100


def test_spread_keeps_both_ends() -> None:
    assert spread(range(10), 4) == [0, 3, 6, 9]
    assert spread(range(3), 4) == [0, 1, 2]
    assert spread(range(9), 1) == [8]
