"""Many processes' trace buffers become one file in the Chrome trace format, which ui.perfetto.dev opens.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU. Times are microseconds of
the driver's clock since the first event.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlinf.config.schema.cluster import TracerConfig
from rlinf.telemetry.trace import COUNTER, INSTANT, SPAN, Event, ProcessTrace, Track
from rlinf.utils.files import write_atomic

TRACE_FILE = "trace.json"

ChromeEvent = dict[str, Any]


@dataclass(frozen=True)
class ClockSample:
    """One question for another process's time, in ns.

    Attributes:
        sent: The driver's clock when it sent the request.
        remote: The other's clock when it answered.
        received: The driver's clock when the answer came.
    """

    sent: int
    remote: int
    received: int

    @property
    def round_trip(self) -> int:
        """Time from question to answer."""
        return self.received - self.sent


def clock_point(samples: Sequence[ClockSample], *, same_boot: bool) -> tuple[int, int]:
    """Estimate how far another process's clock is ahead of the driver's; off by half a round trip at most.

    Args:
        samples: At least one; the one with the shortest round trip counts.
        same_boot: Whether both run on one machine. Its clock is shared, so the difference is 0 unless the measurement
            says otherwise (containers may have a clock of their own).

    Returns:
        (the other's time of the measurement, ns ahead).
    """
    best = min(samples, key=lambda sample: sample.round_trip)
    ahead = best.remote - (best.sent + best.received) // 2
    if same_boot and 2 * abs(ahead) <= best.round_trip + 1:
        ahead = 0
    return best.remote, ahead


def merge_traces(traces: Sequence[ProcessTrace]) -> dict[str, Any]:
    """Put the buffers of all processes on one time axis.

    Args:
        traces: The driver's, and one per worker.

    Returns:
        What ``json.dump`` writes: spans nest within each track; an arrow leads from a send to its receive.
    """
    shifted = [[_shift(trace, event) for event in trace.events] for trace in traces]
    zero = min((event[1] for events in shifted for event in events), default=0)
    chrome: list[ChromeEvent] = []
    ends: dict[str, dict[Hashable, ChromeEvent]] = {"s": {}, "f": {}}
    for pid, (trace, events) in enumerate(zip(traces, shifted, strict=True)):
        lines, names = _lines(trace, events)
        chrome += _metadata(trace, pid, names)
        # Recorded when they ended, but shown by start, and the outer before the inner.
        for event in sorted(events, key=lambda event: (event[1], -event[2])):
            exported = _export(event, pid, lines[event[3]], zero)
            chrome.append(exported)
            if event[7] is not None:
                kind, keys = event[7]
                for key in keys:
                    ends[kind].setdefault(key, exported)
    return {
        "traceEvents": chrome + list(_arrows(ends["s"], ends["f"])),
        "displayTimeUnit": "ms",
        "otherData": {
            "start_unix_ns": _unix_ns(traces, zero),
            "dropped_events": {trace.process: trace.num_dropped for trace in traces if trace.num_dropped},
        },
    }


def write_trace(path: Path, traces: Sequence[ProcessTrace]) -> None:
    """Write the merged trace atomically: a reader sees all of it or none.

    Args:
        path: File to create or replace; its folder is created.
        traces: As ``merge_traces``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps(merge_traces(traces), allow_nan=False, separators=(",", ":")))


def trace_path(tracer: TracerConfig, folder: str | None) -> Path:
    """Return where the trace goes: what the recipe says, or the run's folder, or the working folder."""
    return Path(tracer.path).expanduser() if tracer.path is not None else Path(folder or ".") / TRACE_FILE


def _shift(trace: ProcessTrace, event: Event) -> Event:
    """Express an event's time in the driver's clock."""
    return (event[0], event[1] - _ahead(trace.clock_points, event[1]), *event[2:])


def _ahead(points: Sequence[tuple[int, int]], time_ns: int) -> int:
    """Return how far a clock is ahead at ``time_ns``: clocks of two machines drift, so between the measurements."""
    if not points:
        return 0
    (first, ahead), (last, ahead_last) = min(points), max(points)
    if last == first:
        return ahead
    share = min(max((time_ns - first) / (last - first), 0.0), 1.0)
    return ahead + round((ahead_last - ahead) * share)


def _unix_ns(traces: Sequence[ProcessTrace], zero: int) -> int:
    """Return the wall-clock time of the first event, by the first process, which is the driver."""
    return traces[0].unix_ns - (traces[0].clock_ns - zero) if traces else 0


def _lines(trace: ProcessTrace, events: Sequence[Event]) -> tuple[dict[Track, int], dict[int, str]]:
    """Give each thread a line, and the tasks of its event loop as few further lines as keep them apart.

    Returns:
        The line of each track, and the lines' names.
    """
    spans: dict[Track, tuple[int, int]] = {}
    for _, start, duration, track, *_ in events:
        low, high = spans.get(track, (start, start))
        spans[track] = (min(low, start), max(high, start + duration))
    lines: dict[Track, int] = {}
    names: dict[int, str] = {}
    free: dict[int, list[tuple[int, int]]] = defaultdict(list)  # by thread: (end, line)
    for track, (start, end) in sorted(spans.items(), key=lambda item: item[1]):
        thread, task = track
        lane = next((entry for entry in free[thread] if entry[0] <= start), None) if task else None
        if lane is not None:
            free[thread].remove(lane)
        line = lane[1] if lane is not None else len(names)
        lines[track] = line
        if lane is None:
            suffix = f" task {len(free[thread]) + 1}" if task else ""
            names[line] = f"{trace.threads.get(thread, 'thread')}{suffix}"
        if task:
            free[thread].append((end, line))
    return lines, names


def _metadata(trace: ProcessTrace, pid: int, names: Mapping[int, str]) -> Iterable[ChromeEvent]:
    def record(kind: str, key: str, value: str | int, tid: int = 0) -> ChromeEvent:
        return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": {key: value}}

    yield record("process_name", "name", trace.process)
    yield record("process_labels", "labels", f"{trace.host} pid {trace.pid}")
    yield record("process_sort_index", "sort_index", pid)
    for line, name in names.items():
        yield record("thread_name", "name", name, line)
        yield record("thread_sort_index", "sort_index", line, line)


def _export(event: Event, pid: int, tid: int, zero: int) -> ChromeEvent:
    kind, start, duration, _, name, category, args, _ = event
    chrome: ChromeEvent = {
        "ph": kind,
        "name": name,
        "cat": category,
        # Relative to the first event, so that nanoseconds survive in a double.
        "ts": (start - zero) / 1000,
        "pid": pid,
        "tid": tid,
        "args": {key: _plain(value) for key, value in args.items()},
    }
    if kind == SPAN:
        chrome["dur"] = duration / 1000
    elif kind == INSTANT:
        chrome["s"] = "t"
    else:
        assert kind == COUNTER
    return chrome


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def _arrows(begins: Mapping[Hashable, ChromeEvent], ends: Mapping[Hashable, ChromeEvent]) -> Iterable[ChromeEvent]:
    """Connect each span that begins an arrow with the one that ends it."""
    number = 0
    for key, begin in begins.items():
        end = ends.get(key)
        # One of the two may have been dropped from its buffer; after a relaunch, numbers of messages start anew.
        if end is None or end["ts"] + end["dur"] < begin["ts"]:
            continue
        number += 1
        arrow = {"name": "message", "cat": "message", "id": number}
        yield {"ph": "s", "ts": begin["ts"], "pid": begin["pid"], "tid": begin["tid"], **arrow}
        # An arrow belongs to the span that is open at its time: a wait that began before the send gets it at the send.
        inside = max(begin["ts"], end["ts"])
        yield {"ph": "f", "bp": "e", "ts": inside, "pid": end["pid"], "tid": end["tid"], **arrow}
