import asyncio
import threading
from collections.abc import Iterator
from typing import NoReturn

import pytest

from rlinf.telemetry import trace


@pytest.fixture
def tracer() -> Iterator[None]:
    trace.enable("w:0", 100)
    yield
    trace.disable()


def events() -> dict[str, tuple[str, int, int]]:
    """Return what was recorded: name to (kind, start, end)."""
    return {event[4]: (event[0], event[1], event[1] + event[2]) for event in trace.snapshot().events}


def tracks() -> dict[str, trace.Track]:
    return {event[4]: event[3] for event in trace.snapshot().events}


def test_nothing_is_recorded_while_off() -> None:
    with trace.span("a", "test", x=1):
        trace.instant("b", "test")
        trace.counter("c", value=1.0)
    assert trace.snapshot() is None


def test_nothing_is_left_of_an_earlier_recording(tracer: None) -> None:
    trace.instant("old", "test")
    trace.disable()
    trace.enable("w:0", 100)
    assert trace.snapshot().events == []


def test_spans_nest_in_time(tracer: None) -> None:
    with trace.span("outer", "test"), trace.span("inner", "test"):
        pass
    (_, start, end), (_, inner_start, inner_end) = events()["outer"], events()["inner"]
    assert start <= inner_start <= inner_end <= end


def test_a_span_keeps_its_details_and_its_error(tracer: None) -> NoReturn:
    with pytest.raises(KeyError), trace.span("a", "test", rows=3):
        raise KeyError("x")
    event = trace.snapshot().events[0]
    assert event[4:7] == ("a", "test", {"rows": 3, "error": "KeyError"})


def test_instants_and_counters(tracer: None) -> None:
    trace.instant("restart", "test", rank=1)
    trace.counter("queue", size=4.0)
    assert [(e[0], e[4], e[6]) for e in trace.snapshot().events] == [
        ("i", "restart", {"rank": 1}),
        ("C", "queue", {"size": 4.0}),
    ]


def test_decorated_functions_are_traced_whenever_tracing_is_on() -> None:
    @trace.traced("double", "test")
    def double(x: int) -> int:
        return 2 * x

    assert double(2) == 4
    trace.enable("w:0", 100)
    assert double(3) == 6
    assert list(events()) == ["double"]
    trace.disable()


def test_a_decorated_coroutine_lasts_until_it_returns(tracer: None) -> None:
    @trace.traced("later", "test")
    async def later() -> int:
        await asyncio.sleep(0)
        trace.instant("within", "test")
        return 5

    assert asyncio.run(later()) == 5
    assert events()["later"][1] <= events()["within"][1] <= events()["later"][2]


def test_the_buffer_keeps_the_newest_and_counts_the_rest() -> None:
    trace.enable("w:0", 3)
    for number in range(10):
        trace.instant(f"i{number}", "test")
    snapshot = trace.snapshot()
    trace.disable()
    assert [event[4] for event in snapshot.events] == ["i7", "i8", "i9"]
    assert snapshot.num_dropped == 7


def test_what_is_still_running_is_in_the_snapshot(tracer: None) -> None:
    with trace.span("stuck", "test", on="x"):
        event = trace.snapshot().events[0]
    assert event[4] == "stuck"
    assert event[6] == {"on": "x", "unfinished": True}
    assert [e[6] for e in trace.snapshot().events] == [{"on": "x"}]


def test_threads_have_tracks_of_their_own_and_names(tracer: None) -> None:
    def work() -> None:
        with trace.span("there", "test"):
            pass

    with trace.span("here", "test"):
        thread = threading.Thread(target=work, name="helper")
        thread.start()
        thread.join()
    assert tracks()["here"] != tracks()["there"]
    assert trace.snapshot().threads[tracks()["there"][0]] == "helper"


def test_tasks_of_one_loop_have_tracks_of_their_own(tracer: None) -> None:
    async def work(name: str) -> None:
        with trace.span(name, "test"):
            await asyncio.sleep(0.001)

    async def both() -> None:
        await asyncio.gather(work("a"), work("b"))

    asyncio.run(both())
    assert tracks()["a"] != tracks()["b"]


def test_writers_on_many_threads_lose_nothing() -> None:
    trace.enable("w:0", 10_000)

    def work() -> None:
        for _ in range(500):
            with trace.span("a", "test"):
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    snapshots = [trace.snapshot() for _ in range(20)]
    for thread in threads:
        thread.join()
    last = trace.snapshot()
    trace.disable()
    assert len(last.events) == 4000
    assert last.num_dropped == 0
    assert all(event[2] >= 0 for snapshot in snapshots for event in snapshot.events)


def test_a_phase_lasts_until_the_next(tracer: None) -> None:
    phases = trace.Phases()
    phases.begin("rollout")
    phases.begin("training")
    phases.end()
    phases.end()
    assert events()["rollout"][2] <= events()["training"][1]
    assert len(trace.snapshot().events) == 2


def test_phases_tell_how_long_each_took_since_they_were_asked_last() -> None:
    now = [0.0]
    phases = trace.Phases(clock=lambda: now[0])
    for name, seconds in (("sync weights", 1.0), ("rollout", 2.0), ("sync weights", 0.5), ("training", 4.0)):
        phases.begin(name)
        now[0] += seconds
    assert phases.pop_seconds() == {"sync_weights": 1.5, "rollout": 2.0, "training": 4.0}
    now[0] += 1.0
    phases.end()
    now[0] += 8.0
    assert phases.pop_seconds() == {"training": 1.0}
    assert phases.pop_seconds() == {}
