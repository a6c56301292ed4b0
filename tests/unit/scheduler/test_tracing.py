"""The trace of workers that talk, wait, fail and hang."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlinf.config.schema.cluster import ClusterConfig, TracerConfig
from rlinf.errors import WorkerDiedError, WorkerError
from rlinf.scheduler import Channel, Cluster, PackedPlacementStrategy
from rlinf.telemetry import trace
from tests.unit.scheduler.traced_workers import Traced


@pytest.fixture(scope="module")
def spans(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    """Spans by (process, name) of one group that does a bit of everything; it ends while one method hangs."""
    del cluster  # only keeps Ray running
    path = tmp_path_factory.mktemp("traced") / "trace.json"
    config = ClusterConfig(cpu_slots_per_node=4, tracer=TracerConfig(enable=True, path=str(path)))
    with Cluster(cluster_cfg=config) as traced:
        group = Traced.create_group().launch(traced, PackedPlacementStrategy(0, 1), name="t")
        group.exchange(5).wait()
        channel = Channel.create("traced channel")
        taken = group.execute_on(0).get("traced channel")
        group.execute_on(1).put("traced channel").wait()
        taken.wait()
        naps = [group.execute_on(0).nap("traced channel") for _ in range(2)]
        for _ in naps:
            channel.put("x")
        for nap in naps:
            nap.wait()
        with pytest.raises(WorkerError):
            group.execute_on(1).fail().wait()
        group.execute_on(0).wait_for_nothing()
    found = {}
    merged = json.loads(path.read_text())
    processes = {e["pid"]: e["args"]["name"] for e in merged["traceEvents"] if e["name"] == "process_name"}
    for event in merged["traceEvents"]:
        if event["ph"] == "X":
            found.setdefault((processes[event["pid"]], event["name"]), []).append(event)
        elif event["ph"] in {"s", "f"}:
            found.setdefault(event["ph"], []).append(event)
    return found


def inside(inner: Any, outer: Any) -> Any:
    end = inner["ts"] + inner["dur"]
    return outer["ts"] <= inner["ts"] + 1e-3 and end <= outer["ts"] + outer["dur"] + 1e-3


def test_calls_timers_and_messages_nest(spans: dict[Any, Any]) -> None:
    (call,), (timer,) = spans["t:0", "exchange"][:1], spans["t:0", "exchange"][1:]
    assert (call["cat"], timer["cat"]) == ("call", "timer")
    assert inside(timer, call)
    sends = spans["t:0", "send"]
    assert len(sends) == 7  # five messages, a tensor, a broadcast
    assert all(inside(send, timer) for send in sends)
    assert sends[0]["args"] == {"to": "t:1", "tag": "there"}


def test_every_receive_ends_after_its_send_began(spans: dict[Any, Any]) -> None:
    begins = {event["id"]: event for event in spans["s"]}
    assert len(spans["f"]) == len(begins) == 12
    for end in spans["f"]:
        begin = begins[end["id"]]
        process = "t:1" if begin["pid"] == 1 else "t:0"
        assert begin["ts"] <= end["ts"]
        receive = next(r for r in spans[process, "recv"] if r["ts"] <= end["ts"] <= r["ts"] + r["dur"])
        assert receive["pid"] != begin["pid"]


def test_channel_waits_name_the_channel(spans: dict[Any, Any]) -> None:
    (get,) = [event for event in spans["t:0", "get"] if event["cat"] == "channel" and "key" in event["args"]][:1]
    assert get["args"] == {"channel": "traced channel", "key": "k"}
    assert spans["driver", "put"][0]["cat"] == "channel"


def test_async_calls_that_overlap_are_on_different_lines(spans: dict[Any, Any]) -> None:
    first, second = spans["t:0", "nap"]
    assert max(first["ts"], second["ts"]) < min(first["ts"] + first["dur"], second["ts"] + second["dur"])
    assert first["tid"] != second["tid"]


def test_a_failed_call_names_its_error(spans: dict[Any, Any]) -> None:
    assert spans["t:1", "fail"][0]["args"] == {"error": "ValueError"}


def test_what_hung_at_the_end_is_marked(spans: dict[Any, Any]) -> None:
    (call,) = spans["t:0", "wait_for_nothing"]
    assert call["args"] == {"unfinished": True}
    (wait,) = [event for event in spans["t:0", "recv"] if event["args"]["tag"] == "never"]
    assert wait["args"]["unfinished"] is True
    assert inside(wait, call)


def test_tracing_ends_with_the_cluster(spans: dict[Any, Any]) -> None:
    del spans
    assert trace.current_tracer() is None


def test_a_failed_run_is_traced_without_what_died(cluster: Cluster, tmp_path: Path) -> None:
    del cluster
    path = tmp_path / "trace.json"
    config = ClusterConfig(cpu_slots_per_node=4, tracer=TracerConfig(enable=True, path=str(path)))

    def run() -> None:
        with Cluster(cluster_cfg=config) as traced:
            group = Traced.create_group().launch(traced, PackedPlacementStrategy(0, 1), name="f")
            group.execute_on(1).die().wait()

    with pytest.raises(WorkerDiedError):
        run()
    names = {e["args"]["name"] for e in json.loads(path.read_text())["traceEvents"] if e["name"] == "process_name"}
    assert names == {"driver", "f:0"}


def test_a_worker_without_tracing_records_nothing(
    launch: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    group = launch(Traced.create_group())
    group.exchange(1).wait()
    group.close()
    assert list(tmp_path.iterdir()) == []
