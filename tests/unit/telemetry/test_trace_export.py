import json
from pathlib import Path
from typing import Any

import pytest

from rlinf.config.schema.cluster import TracerConfig
from rlinf.telemetry.trace import ProcessTrace
from rlinf.telemetry.trace_export import ClockSample, clock_point, merge_traces, trace_path, write_trace

MAIN = (11, 0)
MS = 1_000_000


def span(
    name: str,
    start: int,
    duration: int,
    *,
    track: tuple[int, int] = MAIN,
    flow: tuple[str, tuple[tuple[str, str, int] | str, ...]] | None = None,
    **args: tuple[str, int] | float | None,
) -> tuple[
    str,
    int,
    int,
    tuple[int, int],
    str,
    str,
    dict[str, tuple[str, int] | float | None],
    tuple[str, tuple[tuple[str, str, int] | str, ...]] | None,
]:
    return ("X", start, duration, track, name, "test", args, flow)


def process(
    name: str,
    *events: tuple[str, int, int, tuple[int, int], str, str, dict[Any, Any], None],
    points: Any = (),
    dropped: int = 0,
) -> ProcessTrace:
    return ProcessTrace(name, "host", "boot", 7, list(events), dropped, {11: "MainThread"}, 5000, 4000, list(points))


def by_name(merged: dict[str, Any]) -> dict[Any, Any]:
    return {event["name"]: event for event in merged["traceEvents"] if event["ph"] != "M"}


def test_every_event_has_what_the_format_asks_for(tmp_path: Path) -> None:
    instant = ("i", 30, 0, MAIN, "restart", "test", {}, None)
    counter = ("C", 40, 0, MAIN, "queue", "counter", {"size": 2.0}, None)
    path = tmp_path / "a" / "trace.json"
    write_trace(path, [process("driver", span("a", 10, 20, rows=3), instant, counter), process("w:0")])
    loaded = json.loads(path.read_text())
    assert loaded["displayTimeUnit"] in {"ms", "ns"}
    for event in loaded["traceEvents"]:
        assert {"ph", "name", "pid", "tid", "ts"} <= event.keys()
        assert event["ph"] in {"X", "i", "C", "M", "s", "f"}
        assert event["ts"] >= 0
    names = by_name(loaded)
    assert (names["a"]["ts"], names["a"]["dur"], names["a"]["args"]) == (0.0, 0.02, {"rows": 3})
    assert names["restart"]["s"] == "t"
    assert names["queue"]["args"] == {"size": 2.0}
    assert [entry.name for entry in path.parent.iterdir()] == ["trace.json"]


def test_processes_and_threads_are_named() -> None:
    merged = merge_traces([process("driver", span("a", 0, 1)), process("env:1", span("b", 0, 1))])
    names = {e["pid"]: e["args"]["name"] for e in merged["traceEvents"] if e["name"] == "process_name"}
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in merged["traceEvents"] if e["name"] == "thread_name"}
    assert names == {0: "driver", 1: "env:1"}
    assert threads == {(0, 0): "MainThread", (1, 0): "MainThread"}
    assert by_name(merged)["b"]["pid"] == 1


def test_outer_spans_come_before_inner_ones_of_the_same_start() -> None:
    merged = merge_traces([process("driver", span("inner", 5, 10), span("outer", 5, 20))])
    assert [event["name"] for event in merged["traceEvents"] if event["ph"] == "X"] == ["outer", "inner"]


def test_nanoseconds_survive_a_late_start() -> None:
    begin = 3 * 10**18
    merged = merge_traces([process("driver", span("a", begin, 1), span("b", begin + 1, 1))])
    assert by_name(merged)["b"]["ts"] == 0.001


def test_the_start_is_known_in_wall_clock_time() -> None:
    merged = merge_traces([process("driver", span("a", 3000, 1))])
    assert merged["otherData"]["start_unix_ns"] == 4000


def test_other_clocks_are_moved_to_the_drivers() -> None:
    remote = process("w:0", span("b", 1100, 10), points=[(0, 1000)])
    names = by_name(merge_traces([process("driver", span("a", 90, 10)), remote]))
    assert (names["a"]["ts"], names["b"]["ts"]) == (0.0, 0.01)


def test_a_drifting_clock_is_corrected_between_its_two_measurements() -> None:
    remote = process("w:0", span("b", 2000, 10), span("late", 9000, 10), points=[(1000, 100), (3000, 300)])
    names = by_name(merge_traces([process("driver", span("a", 0, 10)), remote]))
    assert names["b"]["ts"] == pytest.approx(1.8)
    assert names["late"]["ts"] == pytest.approx(8.7)


def test_the_quickest_answer_decides_about_a_clock() -> None:
    samples = [ClockSample(0, 9000, 4000), ClockSample(5000, 15_100, 5200)]
    assert clock_point(samples, same_boot=False) == (15_100, 10_000)


def test_a_shared_clock_has_no_offset_unless_measured() -> None:
    assert clock_point([ClockSample(0, 70, 100)], same_boot=True) == (70, 0)
    assert clock_point([ClockSample(0, 70, 100)], same_boot=False) == (70, 20)
    assert clock_point([ClockSample(0, 5050, 100)], same_boot=True) == (5050, 5000)


def arrows(merged: dict[str, Any]) -> list[Any]:
    return [event for event in merged["traceEvents"] if event["ph"] in {"s", "f"}]


def test_an_arrow_leads_from_a_send_to_its_receive() -> None:
    sender = process("a:0", span("send", 100, 10, flow=("s", (("a", "b", 1),))))
    receiver = process("b:0", span("recv", 50, 200, flow=("f", (("a", "b", 1),))))
    begin, end = arrows(merge_traces([sender, receiver]))
    assert (begin["ph"], begin["pid"], begin["ts"]) == ("s", 0, 0.05)
    assert (end["ph"], end["bp"], end["pid"], end["id"]) == ("f", "e", 1, begin["id"])
    assert 0 <= end["ts"] < 0.2
    assert end["ts"] >= begin["ts"]


def test_a_broadcast_has_an_arrow_for_each_receiver() -> None:
    sender = process("a:0", span("send", 0, 1, flow=("s", ("to b", "to c"))))
    receivers = [process(f"{x}:0", span("recv", 0, 9, flow=("f", (f"to {x}",)))) for x in "bc"]
    found = arrows(merge_traces([sender, *receivers]))
    assert len({event["id"] for event in found}) == 2
    assert sorted(event["pid"] for event in found) == [0, 0, 1, 2]


@pytest.mark.parametrize("receive", [None, 0], ids=["dropped", "before the send"])
def test_half_or_impossible_arrows_are_left_out(receive: int | None) -> None:
    sender = process("a:0", span("send", 100, 10, flow=("s", ("k",))))
    others = [] if receive is None else [process("b:0", span("recv", receive, 5, flow=("f", ("k",))))]
    assert arrows(merge_traces([sender, *others])) == []


def test_tasks_share_lines_only_when_they_do_not_overlap() -> None:
    events = [span(f"t{n}", start, 10, track=(11, 100 + n)) for n, start in enumerate((0, 5, 20))]
    merged = merge_traces([process("w:0", span("sync", 0, 100), *events)])
    lines = {name: event["tid"] for name, event in by_name(merged).items()}
    assert len({lines["sync"], lines["t0"], lines["t1"]}) == 3
    assert lines["t2"] in {lines["t0"], lines["t1"]}


def test_details_of_any_kind_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_trace(path, [process("driver", span("a", 0, 1, tag=("x", 1), loss=float("nan"), none=None))])
    assert by_name(json.loads(path.read_text()))["a"]["args"] == {"tag": "('x', 1)", "loss": "nan", "none": None}


def test_dropped_events_are_reported() -> None:
    merged = merge_traces([process("driver"), process("w:0", dropped=3)])
    assert merged["otherData"]["dropped_events"] == {"w:0": 3}


def test_the_trace_goes_to_the_run_folder_unless_the_recipe_says_otherwise(tmp_path: Path) -> None:
    assert trace_path(TracerConfig(), str(tmp_path)) == tmp_path / "trace.json"
    assert trace_path(TracerConfig(path=str(tmp_path / "x.json")), "elsewhere") == tmp_path / "x.json"
