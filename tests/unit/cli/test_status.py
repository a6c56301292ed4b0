"""``rlinf status`` prints what a run reports; how it is asked is the scheduler's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlinf.cli import status
from rlinf.cli.main import main
from rlinf.errors import MissingPackageError

NOON = 12 * 3600.0
CALL = {"method": "update", "since": NOON}
RANK = {"node_id": "node", "node_rank": 0, "node_ip": "10.0.0.1"}
RANKS = [
    {**RANK, "rank": 0, "pid": 11, "state": "ready", "calls": [CALL], "dropped": 2},
    {**RANK, "rank": 1, "pid": 12, "state": "ready", "answers": False},
    {**RANK, "rank": 2, "pid": 13, "state": "gone"},
    {**RANK, "rank": 3, "pid": 14, "state": "ready"},
    {**RANK, "rank": 4, "pid": 15, "state": "ready", "node_id": "another"},
]
REPORT: dict[str, Any] = {
    "namespace": "run0",
    "experiment_name": "walker",
    "here": "node",
    "groups": [
        {"name": "Actor", "incarnation": 2, "state": "ready", "ranks": RANKS},
        {"name": "Old", "incarnation": 1, "state": "closed", "ranks": []},
    ],
    "services": [{"label": "driver", "pid": 10, "calls": []}],
    "channels": [
        {
            "name": "samples",
            "maxsize": 4,
            "keys": [{"key": "'a'", "items": 3, "getters": [{"who": "Actor:0", "since": NOON}], "putters": []}],
        }
    ],
    "leases": {
        "locks": [{"key": "lock0", "holder": "Actor:0", "waiting": ["Actor:1", "Actor:3"]}],
        "ports": [{"port": 4321, "holder": "Actor:3"}],
    },
}


@pytest.fixture(autouse=True)
def reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "query_status", lambda run, address: dict(REPORT))


def test_each_process_has_a_line_that_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 0
    lines = [" ".join(line.replace("│", " ").split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "Run run0 (walker)"
    (first,) = [line for line in lines if line.startswith("Actor:0 (launch 2) 11 0 10.0.0.1")]
    assert "update() since" in first
    assert "2 messages of dead workers dropped" in lines
    assert any(line.startswith("Actor:1 (launch 2) 12 0 10.0.0.1 does not answer") for line in lines)
    assert "Actor:2 (launch 2) 13 0 10.0.0.1 gone" in lines
    assert "Actor:3 (launch 2) 14 0 10.0.0.1 idle" in lines
    assert "Old (launch 1) closed" in lines
    assert "driver 10 idle" in lines


def test_channels_and_leases_name_who_waits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 0
    lines = [" ".join(line.replace("│", " ").split()) for line in capsys.readouterr().out.splitlines()]
    assert any(line.startswith("samples 'a' 3 of 4 Actor:0 gets since") for line in lines)
    assert "lock lock0 Actor:0 Actor:1, Actor:3" in lines
    assert "port 4321 Actor:3" in lines


def test_json_is_what_the_run_reports(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == REPORT


def test_stacks_are_those_of_live_processes_on_this_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status, "_find_py_spy", lambda: "py-spy")
    monkeypatch.setattr(status, "_stack", lambda spy, pid: f"{spy} of {pid}")
    assert main(["status", "--stacks", "--json"]) == 0
    stacks = json.loads(capsys.readouterr().out)["stacks"]
    assert stacks == {"Actor:0": "py-spy of 11", "Actor:1": "py-spy of 12", "Actor:3": "py-spy of 14"}


def test_stacks_need_py_spy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlinf.cli.status.sys.executable", "/nowhere/python")
    monkeypatch.setattr("rlinf.cli.status.shutil.which", lambda _: None)
    with pytest.raises(MissingPackageError, match="pip install 'rlinf\\[debug\\]'"):
        status._find_py_spy()
