"""What a trace becomes."""

import json
from pathlib import Path
from typing import Any

import pytest

from rlinf.telemetry.report.timeline import describe_timeline
from tests.unit.telemetry.report.report_runs import add_trace


def read(folder: Path, **options: Any) -> dict[str, Any]:
    return describe_timeline(folder / "trace.json", is_enabled=True, **options)


def test_spans_are_cut_into_steps(tmp_path: Path) -> None:
    add_trace(tmp_path, steps=3)
    timeline = read(tmp_path)
    assert timeline["processes"] == ["driver", "ActorGroup:0"]
    assert [(step["label"], step["ms"]) for step in timeline["steps"]] == [("1", 10.0), ("2", 10.0), ("3", 10.0)]
    for step in timeline["steps"]:
        named = [(*span[:4], timeline["names"][span[4]]) for span in step["spans"]]
        assert named == [
            (0, 0, 0.0, 6.0, "rollout"),
            (0, 0, 6.0, 4.0, "training"),
            (1, 0, 6.0, 4.0, "run_training"),
            (1, 1, 8.0, 1.0, "optimizer_step"),
        ]


def test_time_of_a_span_is_its_own_without_those_within_it(tmp_path: Path) -> None:
    add_trace(tmp_path)
    for step in read(tmp_path)["steps"]:
        assert step["own"] == [{"rollout": 6.0, "training": 4.0}, {"run_training": 3.0, "optimizer_step": 1.0}]


def test_a_trace_without_marks_is_one_stretch(tmp_path: Path) -> None:
    add_trace(tmp_path)
    path = tmp_path / "trace.json"
    trace = json.loads(path.read_text())
    trace["traceEvents"] = [event for event in trace["traceEvents"] if event["ph"] != "i"]
    path.write_text(json.dumps(trace))
    (step,) = read(tmp_path)["steps"]
    assert (step["label"], step["ms"], len(step["spans"])) == ("all", 20.0, 8)


def test_of_many_steps_some_are_chosen_and_of_many_spans_the_longest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_trace(tmp_path, steps=100)
    timeline = read(tmp_path)
    assert len(timeline["steps"]) == 30
    assert timeline["hidden_steps"] == 70
    assert (timeline["steps"][0]["label"], timeline["steps"][-1]["label"]) == ("1", "100")
    monkeypatch.setattr("rlinf.telemetry.report.timeline._MAX_SPANS", 90)
    monkeypatch.setattr("rlinf.telemetry.report.timeline._MIN_SPANS", 1)
    step = read(tmp_path)["steps"][0]
    assert step["omitted"] == 1
    assert sorted(span[3] for span in step["spans"]) == [4.0, 4.0, 6.0]


def test_a_run_that_was_not_traced_says_which_key_traces(tmp_path: Path) -> None:
    timeline = describe_timeline(tmp_path / "trace.json", is_enabled=False)
    assert timeline["key"] == "cluster.tracer.enable=true"
    assert "when the run ends" in read(tmp_path)["note"]


@pytest.mark.parametrize(
    "text", ["", "[]", '{"traceEvents": [{"ph": "X"}]}', '{"traceEvents": 3}', '{"traceEvents": [1]}']
)
def test_a_damaged_trace_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "trace.json").write_text(text)
    timeline = read(tmp_path)
    assert "trace.json" in timeline.get("note", "trace.json")
    assert not timeline.get("steps")


def test_a_trace_too_large_to_read_is_left_to_perfetto(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_trace(tmp_path)
    monkeypatch.setattr("rlinf.telemetry.report.timeline._MAX_TRACE_BYTES", 10)
    assert "ui.perfetto.dev" in read(tmp_path)["note"]
