"""What every process did within a step, from the run's trace."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf.telemetry.report.run_folder import spread
from rlinf.telemetry.trace import STEP_MARK

# A larger one takes gigabytes of memory to read; Perfetto shows it.
_MAX_TRACE_BYTES = 150_000_000
_MAX_STEPS = 30
# Of a page, for all steps together, about 25 bytes each; within a step the shortest are left out.
_MAX_SPANS = 20_000
_MIN_SPANS = 1000
_MAX_PROCESSES = 64
_MAX_DEPTH = 3
_MAX_NAMES = 40
_MICROSECONDS_PER_MILLISECOND = 1000.0

REST = "other"
"""What stands for the names that take least time."""

_Event = dict[str, Any]
# Process, row, start and duration in ms, name.
_Bar = tuple[int, int, float, float, int]


@dataclass(frozen=True, slots=True)
class _Window:
    """A stretch of the trace, in microseconds."""

    label: str
    start: float
    end: float


@dataclass(frozen=True, slots=True)
class _Span:
    """A span of one process, in microseconds, and how many spans of its thread it lies within."""

    name: str
    start: float
    duration: float
    row: int
    depth: int
    own: float
    """Duration without the spans within it."""


def describe_timeline(path: Path, *, is_enabled: bool, num_runs: int = 1) -> dict[str, Any]:
    """Return what the page plots of a trace.

    Args:
        path: The trace, in the Chrome trace format.
        is_enabled: Whether the recipe asks for one.
        num_runs: Runs that the page shows.

    Returns:
        ``note``, why there is nothing; or ``processes``, ``names`` and ``steps``: for each its ``label``, its length
        ``ms``, its ``spans`` (process, row, start and duration in ms, name), how many were ``omitted``, and ``own``:
        for each process the ms of each name.
    """
    if not path.is_file():
        if is_enabled:
            return {"note": "The trace is written when the run ends."}
        return {"note": "This run was not traced.", "key": "cluster.tracer.enable=true"}
    try:
        size = path.stat().st_size
        if size > _MAX_TRACE_BYTES:
            return {"note": f"{path.name} has {size / 1e6:.0f} MB, too much for this page; ui.perfetto.dev opens it."}
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
        return _describe(events, max(_MAX_SPANS // num_runs, _MIN_SPANS))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return {"note": f"{path.name} cannot be read: {type(error).__name__}: {error}"}


def _describe(events: Sequence[_Event], max_spans: int) -> dict[str, Any]:
    processes = {e["pid"]: str(e["args"]["name"]) for e in events if e["name"] == "process_name" and e["ph"] == "M"}
    shown = dict(sorted(processes.items())[:_MAX_PROCESSES])
    windows = _windows(events)
    chosen = spread(windows, _MAX_STEPS)
    spans = {pid: _nest(e for e in events if e["ph"] == "X" and e["pid"] == pid) for pid in shown}
    names = _longest_names(spans.values())
    per_step = max_spans // max(len(chosen), 1)
    return {
        "processes": list(shown.values()),
        "hidden_processes": len(processes) - len(shown),
        "hidden_steps": len(windows) - len(chosen),
        "names": [*names, REST],
        "steps": _steps(chosen, list(spans.values()), names, per_step),
    }


def _windows(events: Iterable[_Event]) -> list[_Window]:
    """Return the steps that the driver has marked, or the whole trace where it has marked none."""
    spans = [event for event in events if event["ph"] == "X"]
    if not spans:
        return []
    marks = [e for e in events if e["ph"] == "i" and e["name"] == STEP_MARK and "step" in e["args"]]
    start = min(span["ts"] for span in spans)
    if not marks:
        return [_Window("all", start, max(span["ts"] + span["dur"] for span in spans))]
    phases = [span["ts"] for span in spans if span["cat"] == "phase"]
    start = min(phases, default=start)
    windows = []
    for mark in sorted(marks, key=lambda mark: float(mark["ts"])):
        windows.append(_Window(str(mark["args"]["step"]), start, mark["ts"]))
        start = mark["ts"]
    return windows


def _nest(events: Iterable[_Event]) -> list[_Span]:
    """Find out which spans of a process lie within which, and order them by start.

    Threads, and tasks of one, are rows of their own; a span's row is that of its thread plus its depth.
    """
    spans: list[_Span] = []
    by_thread: dict[int, list[_Event]] = defaultdict(list)
    for event in events:
        by_thread[event["tid"]].append(event)
    first_row = 0
    for _, thread in sorted(by_thread.items()):
        open_spans: list[tuple[float, int]] = []  # end, place in found
        found: list[tuple[_Event, int]] = []
        own: list[float] = []
        for event in sorted(thread, key=lambda event: (event["ts"], -event["dur"])):
            while open_spans and open_spans[-1][0] <= event["ts"]:
                open_spans.pop()
            if open_spans:
                own[open_spans[-1][1]] -= event["dur"]
            found.append((event, len(open_spans)))
            own.append(event["dur"])
            open_spans.append((event["ts"] + event["dur"], len(own) - 1))
        for (event, depth), alone in zip(found, own, strict=True):
            spans.append(_Span(event["name"], event["ts"], event["dur"], first_row + depth, depth, max(alone, 0.0)))
        first_row += min(max(depth for _, depth in found) + 1, _MAX_DEPTH)
    return sorted(spans, key=lambda span: span.start)


def _longest_names(processes: Iterable[Iterable[_Span]]) -> list[str]:
    total: dict[str, float] = defaultdict(float)
    for spans in processes:
        for span in spans:
            total[span.name] += span.own
    return sorted(total, key=lambda name: -total[name])[:_MAX_NAMES]


def _steps(
    windows: Sequence[_Window], processes: Sequence[Sequence[_Span]], names: Sequence[str], limit: int
) -> list[dict[str, Any]]:
    """Cut the spans of all processes into steps, of each at most ``limit``."""
    number = {name: index for index, name in enumerate(names)}
    drawn: list[list[_Bar]] = [[] for _ in windows]
    own: list[list[dict[str, float]]] = [[defaultdict(float) for _ in processes] for _ in windows]
    ends = [window.end for window in windows]
    for index, spans in enumerate(processes):
        for span in spans:
            for place in range(bisect_right(ends, span.start), len(windows)):
                window = windows[place]
                begin, end = max(span.start, window.start), min(span.start + span.duration, window.end)
                if window.start >= span.start + span.duration:
                    break
                own[place][index][span.name if span.name in number else REST] += min(span.own, end - begin)
                if span.depth < _MAX_DEPTH:
                    where = _milliseconds(begin - window.start), _milliseconds(end - begin)
                    drawn[place].append((index, span.row, *where, number.get(span.name, len(names))))
    return [_step(*parts, limit) for parts in zip(windows, drawn, own, strict=True)]


def _step(window: _Window, bars: list[_Bar], own: list[dict[str, float]], limit: int) -> dict[str, Any]:
    longest = sorted(bars, key=lambda bar: -bar[3])[:limit]
    return {
        "label": window.label,
        "ms": _milliseconds(window.end - window.start),
        "spans": sorted(longest),
        "omitted": len(bars) - len(longest),
        "own": [{name: _milliseconds(value) for name, value in process.items()} for process in own],
    }


def _milliseconds(microseconds: float) -> float:
    return round(microseconds / _MICROSECONDS_PER_MILLISECOND, 3)
