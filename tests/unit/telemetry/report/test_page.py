"""The page as a file: whole, self-contained, and safe from what runs have written."""

import json
import math
import re
import sys
from pathlib import Path

import pytest

from rlinf.errors import MissingPackageError
from rlinf.telemetry.report import RunFolder, find_runs, write_report
from rlinf.telemetry.report.page import asset, render, script_json
from tests.unit.telemetry.report.report_runs import (
    HOSTILE,
    add_answers,
    add_episodes,
    add_trace,
    answer,
    embedded,
    make_run,
    page_data,
)

MAX_BYTES = 10_000_000


def test_a_page_holds_what_all_tabs_show(tmp_path: Path) -> None:
    folder = make_run(tmp_path, overrides=["cluster.tracer.enable=true"])
    add_answers(folder, 1, [answer()])
    add_episodes(folder, 2, 1)
    add_trace(folder)
    (run,) = page_data(folder, output=tmp_path / "report.html")["runs"]
    assert (run["name"], run["step"], run["total"], run["seconds"]) == ("cart", 4, 30, 8.0)
    assert run["curves"]["series"]["eval/return"]
    assert run["times"]["views"]
    assert run["timeline"]["steps"]
    assert run["samples"]["training"]
    assert run["episodes"]
    assert run["recipe"]["keys"]
    assert run["history"]["launches"]


def test_several_runs_share_a_page(tmp_path: Path) -> None:
    make_run(tmp_path / "runs", "a")
    make_run(tmp_path / "runs", "b", steps=6)
    output = tmp_path / "both.html"
    write_report(find_runs([tmp_path / "runs"]), output)
    page = output.read_text(encoding="utf-8")
    assert [(run["name"], run["step"]) for run in embedded(page)["runs"]] == [("a", 4), ("b", 6)]
    assert "<title>2 runs</title>" in page


def test_a_folder_with_nothing_but_a_recipe_has_a_page(tmp_path: Path) -> None:
    folder = make_run(tmp_path, steps=0)
    (folder / "metrics.jsonl").unlink()
    (run,) = page_data(folder, output=tmp_path / "report.html")["runs"]
    assert (run["step"], run["times"], run["samples"], run["episodes"], run["videos"]) == (None,) * 5
    assert run["curves"]["series"] == {}


def test_nothing_that_a_run_has_written_becomes_markup(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "<b>bold", metrics=lambda step: {HOSTILE: float(step)})
    add_answers(folder, 1, [answer(HOSTILE, prompt=HOSTILE, reference=HOSTILE)])
    output = tmp_path / "report.html"
    (run,) = page_data(folder, output=output)["runs"]
    (row,) = run["samples"]["training"][0]["rows"]
    assert row["prompt"] == row["answer"] == HOSTILE
    assert HOSTILE in run["curves"]["series"]
    page = output.read_text(encoding="utf-8")
    for written in ("window.broken = 1</script>", "<img src=x", "<b>"):
        assert written not in page


def test_data_that_looks_like_a_place_of_the_template_stays_data() -> None:
    page = render({"runs": "<!--library-->"}, "<!--scripts-->", "LIBRARY")
    assert embedded(page)["runs"] == "<!--library-->"
    assert page.count("LIBRARY") == 1
    assert "<title>&lt;!--scripts--&gt;</title>" in page


def test_json_in_a_script_keeps_every_string_and_replaces_what_it_cannot_hold() -> None:
    data = {"text": f"{HOSTILE}\ud800", "nan": [math.nan, math.inf, 1.5]}
    text = script_json(data)
    assert not set(text) & set("<>&")
    assert json.loads(text) == {"text": data["text"], "nan": [None, None, 1.5]}


def test_the_page_asks_for_nothing_outside_of_it(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    output = tmp_path / "report.html"
    write_report([RunFolder.read(folder)], output)
    frame = render({}, "", "")
    assert "default-src 'none'" in frame
    assert not re.findall(r"""(?:src|href)=["'](?!data:)""", frame)
    assert not re.findall(r"https?://|@import|url\(", frame)
    assert output.stat().st_size < MAX_BYTES


def test_a_large_run_has_a_page_of_bounded_size(tmp_path: Path) -> None:
    def many(step: int) -> dict[str, float]:
        return {f"train/metric_{number}": math.sin(step * number) for number in range(60)}

    folder = make_run(tmp_path, steps=3000, metrics=many)
    for step in range(40):
        add_answers(folder, step, [answer("long " * 2000, group=number) for number in range(20)])
    output = tmp_path / "report.html"
    write_report([RunFolder.read(folder)], output)
    assert output.stat().st_size < MAX_BYTES


def test_writing_again_replaces_the_page_whole(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    output = tmp_path / "report.html"
    output.write_text("old")
    write_report([RunFolder.read(folder)], output)
    assert output.read_text(encoding="utf-8").endswith("</html>\n")
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".tmp"] == []


def test_without_plotly_the_install_command_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(MissingPackageError, match=r"rlinf\[report\]"):
        write_report([RunFolder.read(make_run(tmp_path))], tmp_path / "report.html")


def test_every_panel_has_a_tab_and_every_asset_is_used() -> None:
    page = asset("page.html")
    tabs = re.findall(r'id="tab-(\w+)" aria-controls="panel-(\w+)"', page)
    panels = re.findall(r'id="panel-(\w+)" aria-labelledby="tab-(\w+)"', page)
    assert tabs == panels
    assert all(left == right for left, right in tabs)
