"""The trace of a run: how the driver gets every process's buffer, and timers that are spans too.

Workers answer for their buffers on their endpoint's thread, so also while their methods are blocked.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from rlinf.errors import RLinfError
from rlinf.scheduler.address import WorkerInfo
from rlinf.scheduler.comm.endpoint import Call, Endpoint, Reply
from rlinf.telemetry import trace
from rlinf.telemetry.trace import ProcessTrace, Span, Tracer
from rlinf.telemetry.trace_export import ClockSample, clock_point, write_trace
from rlinf.utils.logging import get_logger
from rlinf.utils.timing import Timers

# The end of a run, or of a failed one, waits for buffers no longer than this, also when workers hang.
_GATHER_SECONDS = 10.0
# Requests to one clock; the quickest reply counts.
_CLOCK_QUESTIONS = 5
_CLOCK_SECONDS = 2.0

_CLOCK, _SNAPSHOT = "trace_clock", "trace_snapshot"


def timed(timers: Timers, tag: str) -> AbstractContextManager[Any]:
    """Return a timer that is also a span while tracing is on."""
    tracer = trace.current_tracer()
    return timers(tag) if tracer is None else _TimedSpan(tracer, timers, tag)


class _TimedSpan(Span):
    __slots__ = ("timers",)

    def __init__(self, tracer: Tracer, timers: Timers, tag: str) -> None:
        super().__init__(tracer, tag, "timer", {})
        self.timers = timers

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.timers.add(self.name, (time.perf_counter_ns() - self.start_ns) / 1e9)
        super().__exit__(kind, error, traceback)


def serve_trace(endpoint: Endpoint) -> None:
    """Serve this process's clock and buffer to the driver."""
    endpoint.serve(_CLOCK, lambda call: call.reply(time.perf_counter_ns()))
    endpoint.serve(_SNAPSHOT, _reply_snapshot)


def _reply_snapshot(call: Call) -> None:
    call.reply(None, [pickle.dumps(_plain_tags(trace.snapshot()), protocol=5)])


def _plain_tags(snapshot: ProcessTrace | None) -> ProcessTrace | None:
    """Turn details into text: an object of the user's may not be loadable in the driver."""
    if snapshot is not None:
        snapshot.events = [(*event[:6], _plain(event[6]), event[7]) for event in snapshot.events]
    return snapshot


def _plain(details: Any) -> dict[str, Any]:
    return {k: v if isinstance(v, (int, float, str, type(None))) else str(v) for k, v in details.items()}


class TraceCollector:
    """The driver's side: knows every worker's clock, gathers buffers before workers end, writes the file.

    Args:
        endpoint: The driver's.
        path: The file to write.
    """

    def __init__(self, endpoint: Endpoint, path: Path) -> None:
        self._endpoint = endpoint
        self._path = path
        self._clocks: dict[str, list[ClockSample]] = {}
        self._gathered: list[ProcessTrace] = []

    def meet(self, members: Sequence[WorkerInfo]) -> None:
        """Compare the clocks of workers that have just been launched with the driver's."""
        deadline = time.monotonic() + _CLOCK_SECONDS
        for member in members:
            sample = self._ask_clock(member, deadline)
            if sample is not None:
                self._clocks.setdefault(member.endpoint.uid, []).append(sample)

    def gather(self, members: Sequence[WorkerInfo]) -> None:
        """Take the buffers of workers that are about to end; those that do not answer in time are left out."""
        deadline = time.monotonic() + _GATHER_SECONDS
        self.meet(members)
        requests = [(member, self._endpoint.request(member.endpoint, _SNAPSHOT)) for member in members]
        for member, future in requests:
            reply = _answer(future, deadline)
            snapshot = None if reply is None else cast("ProcessTrace | None", pickle.loads(reply.frames[0]))
            if snapshot is None:
                get_logger(__name__).warning("The trace lacks %s: it did not answer.", member.address)
                continue
            same_boot = snapshot.boot_id == trace.boot_id()
            samples = self._clocks.pop(member.endpoint.uid, [])
            snapshot.clock_points = [clock_point([sample], same_boot=same_boot) for sample in samples]
            self._gathered.append(snapshot)

    def write(self) -> None:
        """Write what was gathered, and the driver's own buffer; then stop recording."""
        own = trace.snapshot()
        trace.disable()
        if own is None:
            return
        try:
            write_trace(self._path, [own, *sorted(self._gathered, key=lambda entry: entry.process)])
        except OSError as error:  # what follows ends the run's processes, and must not be skipped
            get_logger(__name__).error("The trace could not be written: %s", error)
            return
        get_logger(__name__).info("Trace of %d processes: %s", len(self._gathered) + 1, self._path)

    def _ask_clock(self, member: WorkerInfo, deadline: float) -> ClockSample | None:
        samples = []
        for _ in range(_CLOCK_QUESTIONS):
            sent = time.perf_counter_ns()
            reply = _answer(self._endpoint.request(member.endpoint, _CLOCK), deadline)
            if reply is None:
                return None
            samples.append(ClockSample(sent, reply.value, time.perf_counter_ns()))
        return min(samples, key=lambda sample: sample.round_trip)


def _answer(future: Future[Reply], deadline: float) -> Reply | None:
    try:
        return future.result(timeout=max(deadline - time.monotonic(), 0.0))
    except (RLinfError, FutureTimeoutError) as error:
        get_logger(__name__).debug("No answer for the trace: %s", error)
        return None
