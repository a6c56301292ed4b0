"""What a process does and when: spans, instants and counters in a bounded buffer, at next to no cost while off.

Each process has at most one tracer; ``enable`` starts it, and until then every function here does nothing.
``trace_export`` turns the buffers of all processes of a run into one file.

Example:
    >>> with span("load", "data", batch=3):
    ...     pass
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import os
import socket
import threading
import time
from asyncio import _get_running_loop  # the only question about the loop that costs nothing where there is none
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

SPAN, INSTANT, COUNTER = "X", "i", "C"

STEP_MARK = "step"
"""Name of the driver's instants that say which step has just been recorded."""
PHASE_PREFIX = "time/phase/"
"""What the metrics of a loop's phases begin with."""

# A thread, or a task on a thread's event loop: within one of them spans nest.
Track = tuple[int, int]
# Kind, start and duration in ns of this process's clock, track, name, category, arguments, flow.
Event = tuple[str, int, int, Track, str, str, Mapping[str, Any], "Flow | None"]
# "s" (this span begins the arrows with these names) or "f" (this span ends them).
Flow = tuple[str, tuple[Hashable, ...]]


@dataclass
class ProcessTrace:
    """One process's buffer, on its way to the merged trace.

    Attributes:
        process: Name of the process, ``group:rank`` for a worker.
        host: Name of its machine.
        boot_id: Names the machine's boot: processes with an equal one share a clock.
        pid: Process id on that machine.
        events: Oldest end first.
        num_dropped: Events that the buffer had no room for.
        threads: Name of each thread by its identity.
        unix_ns: Wall-clock time at ``clock_ns``.
        clock_ns: Time of this process's clock at the snapshot.
        clock_points: (time of this process's clock, how far it was ahead of the driver's), both in ns, as measured.
    """

    process: str
    host: str
    boot_id: str
    pid: int
    events: list[Event]
    num_dropped: int
    threads: dict[int, str]
    unix_ns: int
    clock_ns: int
    clock_points: list[tuple[int, int]] = field(default_factory=list)


class Span:
    """A block of time; a context manager, made by ``span``.

    Args:
        tracer: Keeps it.
        name: What happens in the block; a small number of different names.
        category: Which part of the system it belongs to.
        args: Details, shown when the span is selected.
        flow: Arrows that begin or end here.
    """

    __slots__ = ("args", "category", "flow", "name", "start_ns", "track", "tracer")

    def __init__(
        self, tracer: Tracer, name: str, category: str, args: Mapping[str, Any], flow: Flow | None = None
    ) -> None:
        self.tracer = tracer
        self.name = name
        self.category = category
        self.args = args
        self.flow = flow

    def __enter__(self) -> Span:
        """Begin."""
        self.track = self.tracer.track()
        self.start_ns = time.perf_counter_ns()
        self.tracer.open[id(self)] = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End, and note the kind of error if there was one."""
        end_ns = time.perf_counter_ns()
        tracer = self.tracer
        tracer.open.pop(id(self), None)
        if kind is not None:
            self.args = {**self.args, "error": kind.__name__}
        duration = end_ns - self.start_ns
        tracer.append((SPAN, self.start_ns, duration, self.track, self.name, self.category, self.args, self.flow))


class _Nothing(AbstractContextManager["_Nothing"]):
    """What ``span`` returns while tracing is off."""

    __slots__ = ()

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *error: object) -> None:
        return None


class Tracer:
    """One process's ring buffer of events; any thread may write to it.

    Args:
        process: Name of the process.
        max_events: Events kept; beyond that the oldest are dropped and counted.
    """

    def __init__(self, process: str, max_events: int) -> None:
        self.process = process
        self.open: dict[int, Span] = {}
        self._events: deque[Event] = deque(maxlen=max_events)
        self._numbers = itertools.count(1)
        self._num_events = 0
        self._threads: dict[int, str] = {}

    def append(self, event: Event) -> None:
        """Keep an event."""
        # Both are atomic: no lock is needed, and a thread that reads meanwhile may at worst count one event less.
        self._events.append(event)
        self._num_events = next(self._numbers)

    def track(self) -> Track:
        """Return which row of the timeline the running code belongs to."""
        thread = threading.get_ident()
        if thread not in self._threads:
            self._threads[thread] = threading.current_thread().name
        loop = _get_running_loop()
        # Tasks of one loop interleave, so each needs a line of its own.
        return (thread, 0) if loop is None else (thread, id(asyncio.current_task(loop)))

    def snapshot(self) -> ProcessTrace:
        """Return what is in the buffer; blocks that have not ended count up to now and are marked unfinished."""
        now = time.perf_counter_ns()
        events, num_events = self._events.copy(), self._num_events
        running = [
            (SPAN, s.start_ns, now - s.start_ns, s.track, s.name, s.category, {**s.args, "unfinished": True}, None)
            for s in list(self.open.values())
        ]
        return ProcessTrace(
            process=self.process,
            host=socket.gethostname(),
            boot_id=boot_id(),
            pid=os.getpid(),
            # One may have begun on another thread after ``now`` was taken.
            events=[*events, *(event for event in running if event[2] >= 0)],
            num_dropped=max(num_events - len(events), 0),
            threads=dict(self._threads),
            unix_ns=time.time_ns(),
            clock_ns=now,
        )


NOTHING = _Nothing()
_tracer: Tracer | None = None


def enable(process: str, max_events: int) -> None:
    """Start recording in this process, with an empty buffer.

    Args:
        process: Name of the process.
        max_events: Events kept; beyond that the oldest are dropped.
    """
    global _tracer
    _tracer = Tracer(process, max_events)


def disable() -> None:
    """Stop recording and forget what was recorded."""
    global _tracer
    _tracer = None


def current_tracer() -> Tracer | None:
    """Return this process's tracer, or None while tracing is off."""
    return _tracer


def snapshot() -> ProcessTrace | None:
    """Return this process's buffer, or None while tracing is off."""
    return None if _tracer is None else _tracer.snapshot()


def span(name: str, category: str, flow: Flow | None = None, **args: Any) -> Span | AbstractContextManager[Any]:
    """Record the block of a ``with`` statement.

    Args:
        name: What happens in the block; a small number of different names.
        category: Which part of the system it belongs to.
        flow: Arrows that begin or end here.
        **args: Details, shown when the span is selected.
    """
    return NOTHING if _tracer is None else Span(_tracer, name, category, args, flow)


def traced(name: str, category: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Record every call of a function, ``async def`` ones too: ``@traced("forward", "train")``.

    Args:
        name: Name of the spans.
        category: Which part of the system they belong to.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def traced_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                with span(name, category):
                    return await function(*args, **kwargs)

            return cast(Callable[P, R], traced_async)

        @functools.wraps(function)
        def traced_call(*args: P.args, **kwargs: P.kwargs) -> R:
            with span(name, category):
                return function(*args, **kwargs)

        return traced_call

    return decorate


class Phases:
    """What a process is busy with, one phase after the other: each is a span up to the next.

    Args:
        clock: Seconds from any fixed point, never running backwards; for tests.
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._current: AbstractContextManager[Any] = NOTHING
        self._name = ""
        self._since = clock()
        self._seconds: dict[str, float] = {}

    def begin(self, name: str) -> None:
        """End the phase before and begin one."""
        self.end()
        self._name = name
        self._current = span(name, "phase")
        self._current.__enter__()

    def end(self) -> None:
        """End the present phase, if there is one."""
        self._count()
        self._name = ""
        self._current.__exit__(None, None, None)
        self._current = NOTHING

    def pop_seconds(self) -> dict[str, float]:
        """Return the seconds of each phase since the last call, by the names that metrics have."""
        self._count()
        seconds, self._seconds = self._seconds, {}
        return seconds

    def _count(self) -> None:
        now = self._clock()
        if self._name:
            name = self._name.replace(" ", "_")
            self._seconds[name] = self._seconds.get(name, 0.0) + now - self._since
        self._since = now


def instant(name: str, category: str, **args: Any) -> None:
    """Record a moment, for instance a restart.

    Args:
        name: What happened.
        category: Which part of the system it belongs to.
        **args: Details.
    """
    if _tracer is not None:
        _tracer.append((INSTANT, time.perf_counter_ns(), 0, _tracer.track(), name, category, args, None))


def counter(name: str, **values: float) -> None:
    """Record the present values of quantities, plotted over time; several of one name are stacked.

    Args:
        name: Title of the graph.
        **values: The quantities.
    """
    if _tracer is not None:
        _tracer.append((COUNTER, time.perf_counter_ns(), 0, _tracer.track(), name, "counter", values, None))


@functools.cache
def boot_id() -> str:
    """Return the name of this machine's boot: processes with an equal one share a clock."""
    path = Path("/proc/sys/kernel/random/boot_id")
    # Elsewhere the host's name is the best there is; a clock that it wrongly takes for shared is noticed when measured.
    return path.read_text().strip() if path.exists() else socket.gethostname()
