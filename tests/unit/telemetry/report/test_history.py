"""The history of a run: launches, restarts, warnings and the end."""

from pathlib import Path
from typing import Any

import pytest

from rlinf.telemetry.events import EventLog
from rlinf.telemetry.report import RunFolder
from rlinf.telemetry.report.history import describe_history
from rlinf.telemetry.report.recipe import describe_recipe
from rlinf.utils.logging import get_logger
from tests.unit.telemetry.report.report_runs import make_run


def recipe_of(folder: Path) -> tuple[dict[str, Any] | None, dict[Any, Any]]:
    recipe = describe_recipe(RunFolder.read(folder))
    return recipe, {key["path"]: key for key in recipe["keys"]}


def test_recipes_of_earlier_launches_are_compared(tmp_path: Path) -> None:
    make_run(tmp_path)
    folder = make_run(tmp_path, overrides=["actor.optim.lr=0.25"], resume=True)
    (earlier,) = recipe_of(folder)[0]["earlier"]
    assert earlier["file"] == "config.1.yaml"
    assert [(change["path"], change["now"]) for change in earlier["changes"]] == [("actor.optim.lr", "0.25")]


def test_launches_carry_versions_command_and_seed(tmp_path: Path) -> None:
    make_run(tmp_path)
    history = describe_history(RunFolder.read(make_run(tmp_path, resume=True)))
    first, second = history["launches"]
    assert (first["resumed"], second["resumed"]) == (False, True)
    assert second["seed"] == 7
    assert second["versions"]["numpy"]
    assert "--config-name" in second["command"]


def test_restarts_warnings_and_the_end_are_told(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    events = EventLog(folder)
    with events:
        events.add("start", "Started at step 0 of 4.")
        events.step = 3
        get_logger("x").warning("the disk is nearly full: %d %%", 97)
        get_logger("x").info("nothing of note")
        events.add("restart", "EnvGroup:0 died")
        assert "No end" in describe_history(RunFolder.read(folder))["status"]
        events.add("end", "Finished at step 4 of 4.")
    get_logger("x").warning("after the run")
    history = describe_history(RunFolder.read(folder))
    assert [(event["kind"], event["step"]) for event in history["events"]] == [
        ("start", 0),
        ("warning", 3),
        ("restart", 3),
        ("end", 3),
    ]
    assert history["events"][1]["text"] == "the disk is nearly full: 97 %"
    assert (history["restarts"], history["warnings"], history["status"]) == (1, 1, "Finished at step 4 of 4.")


def test_warnings_of_workers_are_read_from_their_logs(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    log = folder / "worker_logs" / "EnvGroup_0.log"
    log.parent.mkdir()
    log.write_text(
        "10:00:00 INFO [EnvGroup:0] Ready.\n"
        "10:00:01 WARNING [EnvGroup:0] slow\n"
        "10:00:02 WARNING [EnvGroup:0] slow\n"
        "10:00:03 ERROR [EnvGroup:0] broken <b>\n"
    )
    assert describe_history(RunFolder.read(folder))["worker_warnings"] == [
        {"time": "10:00:02", "level": "warning", "worker": "EnvGroup:0", "text": "slow"},
        {"time": "10:00:03", "level": "error", "worker": "EnvGroup:0", "text": "broken <b>"},
    ]


@pytest.mark.parametrize("name", ["config.yaml", "run.json"])
def test_a_folder_that_lacks_a_record_has_the_others(tmp_path: Path, name: str) -> None:
    folder = make_run(tmp_path)
    (folder / name).unlink()
    run = RunFolder.read(folder)
    assert (describe_recipe(run) is None) == (name == "config.yaml")
    assert bool(describe_history(run)["launches"]) == (name == "config.yaml")
