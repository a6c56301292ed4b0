"""The trace and the profiles of a whole run."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlinf.errors import ConfigError
from tests.e2e.conftest import TINY
from tests.unit.telemetry.report.report_runs import embedded

pytestmark = pytest.mark.timeout(400)
RECIPE = "gym_cartpole_ppo_mlp"
# Times are written to the nanosecond; a double may round them.
EPSILON_MICROSECONDS = 1e-3


@pytest.fixture(scope="module")
def run_recipe(train: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *overrides: train(RECIPE, *TINY, *overrides)


@pytest.fixture(scope="module")
def folder(run_recipe: Callable[..., Any]) -> Path:
    profiling = "cluster.profiling={enable: true, steps: [2], groups: [actor, env], ranks: [0]}"
    return run_recipe("cluster.tracer.enable=true", profiling)


@pytest.fixture(scope="module")
def events(folder: Path) -> list[dict[str, Any]]:
    """Events of the trace, each with the name of its process."""
    merged = json.loads((folder / "trace.json").read_text())
    assert merged["otherData"]["dropped_events"] == {}
    names = {e["pid"]: e["args"]["name"] for e in merged["traceEvents"] if e["name"] == "process_name"}
    return [event | {"process": names[event["pid"]]} for event in merged["traceEvents"] if event["ph"] != "M"]


def spans(events: list[dict[str, Any]], process: str, category: str | None = None) -> list[dict[str, Any]]:
    return [
        event
        for event in events
        if event["ph"] == "X" and event["process"] == process and category in {None, event["cat"]}
    ]


def end(span: dict[str, Any]) -> float:
    return span["ts"] + span["dur"]


def test_all_groups_and_the_driver_are_there(events: list[dict[str, Any]]) -> None:
    assert {e["process"] for e in events} == {"driver", "ActorGroup:0", "RolloutGroup:0", "EnvGroup:0"}
    expected = {
        "driver": {"sync weights", "rollout", "advantages", "training", "evaluation", "checkpoint"},
        "ActorGroup:0": {"sync_model_to_rollout", "training", "forward_backward", "optimizer_step", "send", "recv"},
        "RolloutGroup:0": {"generate", "infer", "load_weights", "send", "recv", "wait_for_envs"},
        "EnvGroup:0": {"interact", "env_step", "send", "recv", "wait_for_actions"},
    }
    for process, names in expected.items():
        assert names <= {span["name"] for span in spans(events, process)}, process


def test_spans_of_a_thread_nest(events: list[dict[str, Any]]) -> None:
    lines = {}
    for event in events:
        if event["ph"] == "X":
            lines.setdefault((event["pid"], event["tid"]), []).append(event)
    for line in lines.values():
        open_until = []
        for span in sorted(line, key=lambda span: (span["ts"], -span["dur"])):
            while open_until and open_until[-1] <= span["ts"] + EPSILON_MICROSECONDS:
                open_until.pop()
            assert not open_until or end(span) <= open_until[-1] + EPSILON_MICROSECONDS, span
            open_until.append(end(span))


def test_a_message_is_received_after_its_send_began(events: list[dict[str, Any]]) -> None:
    begins = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = [event for event in events if event["ph"] == "f"]
    sends = [event for event in events if event["ph"] == "X" and event["name"] == "send"]
    receives = {(event["pid"], event["ts"]): event for event in events if event["name"] == "recv"}
    assert len(ends) == len(begins) == len(sends) == len(receives)
    assert {(begins[e["id"]]["process"], e["process"]) for e in ends} == {
        ("EnvGroup:0", "RolloutGroup:0"),
        ("RolloutGroup:0", "EnvGroup:0"),
        ("RolloutGroup:0", "ActorGroup:0"),
        ("ActorGroup:0", "RolloutGroup:0"),
    }
    for event in ends:
        assert begins[event["id"]]["ts"] <= event["ts"]


def test_workers_do_what_the_driver_says_when_it_says_it(events: list[dict[str, Any]]) -> None:
    training = [span for span in spans(events, "driver", "phase") if span["name"] == "training"]
    calls = [span for span in spans(events, "ActorGroup:0", "call") if span["name"] == "run_training"]
    assert len(training) == len(calls) == 2
    for phase, call in zip(training, calls, strict=True):
        assert phase["ts"] <= call["ts"]
        assert end(call) <= end(phase)


def test_chosen_steps_of_chosen_workers_are_profiled(folder: Path) -> None:
    files = sorted((folder / "profile").iterdir())
    assert [path.name for path in files] == ["ActorGroup_0_step_2.json", "EnvGroup_0_step_2.json"]
    names = {event.get("name") for event in json.loads(files[0].read_text())["traceEvents"]}
    assert "aten::addmm" in names


def test_without_it_nothing_is_written(run_recipe: Callable[..., Any]) -> None:
    folder = run_recipe("runner.max_epochs=1", "runner.val_check_interval=-1", "runner.logger.report=false")
    assert not (folder / "trace.json").exists()
    assert not (folder / "profile").exists()
    assert not (folder / "report.html").exists()


def test_the_page_of_a_run_has_its_trace_its_phases_and_its_end(folder: Path) -> None:
    (run,) = embedded((folder / "report.html").read_text(encoding="utf-8"))["runs"]
    assert [step["label"] for step in run["timeline"]["steps"]] == ["0", "1", "2"]
    assert run["timeline"]["processes"] == ["driver", "ActorGroup:0", "EnvGroup:0", "RolloutGroup:0"]
    loop = run["times"]["views"][0]
    assert loop["name"] == "loop"
    assert {"rollout", "advantages", "training", "sync_weights", "evaluation"} <= set(loop["parts"])
    assert "node 0" in run["recipe"]["placement"]
    assert run["history"]["status"] == "Finished at step 2 of 2."


def test_profiling_a_rank_that_does_not_exist_is_refused(run_recipe: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=r"cluster\.profiling\.ranks.*ranks 0-0"):
        run_recipe("cluster.profiling={enable: true, ranks: [3]}")
