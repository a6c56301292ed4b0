"""What a run prints: plain lines, a live line on a terminal, nothing when quiet."""

import io
import logging
import math
import os
import pty
import re
import subprocess
import sys
import textwrap
from typing import Any

import pytest

from rlinf.telemetry.console import Console


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_plain_output_is_one_line_a_step_and_the_phases_before_the_first() -> None:
    out, clock = io.StringIO(), Clock()
    with Console(10, "demo", file=out, clock=clock) as console:
        console.phase("starting workers")
        clock.now = 30
        console.update(1, {"env/return": 12.5, "env/success_once": 0.25, "time/env_steps_per_second": 1234.0, "x": 1})
        console.phase("rollout")
        clock.now = 60
        console.update(2, {"env/return": math.nan})
        console.message("a [bracket] note")
    assert out.getvalue().splitlines() == [
        "demo: 10 steps",
        "  starting workers ...",
        "step 1/10 | return 12.5 | success 0.25 | steps/s 1234 | ETA 0:04:30",
        "step 2/10 | steps/s 1234 | ETA 0:04:00",
        "a [bracket] note",
    ]


def test_eta_counts_only_this_processes_steps_and_follows_the_pace() -> None:
    clock = Clock()
    console = Console(100, "demo", start_step=50, file=io.StringIO(), clock=clock)
    with console:
        assert console.eta_seconds() is None
        clock.now = 10
        console.update(51, {})
        assert console.eta_seconds() == pytest.approx(490)
        for step in range(52, 81):
            clock.now += 1
            console.update(step, {})
        assert console.eta_seconds() == pytest.approx(20)
        clock.now += 1
        console.update(100, {})
        assert console.eta_seconds() == 0


def test_a_quiet_run_prints_its_end_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLINF_QUIET", "1")
    out = io.StringIO()
    with Console(2, "demo", file=out) as console:
        console.phase("rollout")
        console.update(2, {"env/return": 1.0})
        console.table({"env/return": 1.0}, 2)
        console.message("a note")
    console.summary({"metrics": "r/metrics.jsonl", "checkpoint": "r/c"}, {"eval/return": 9.5, "env/return": 1.0})
    assert out.getvalue() == "demo: step 2/2 | eval/return 9.5 | r/metrics.jsonl\n"


def test_quiet_prints_nothing() -> None:
    out = io.StringIO()
    with Console(2, "demo", quiet=True, file=out) as console:
        console.phase("x")
        console.update(1, {"env/return": 1.0})
        console.table({"train/loss": 1.0}, 1)
        console.message("m")
        console.summary({"checkpoint": "p"}, {"a": 1.0})
    assert out.getvalue() == ""


def test_a_return_of_an_earlier_step_is_not_shown() -> None:
    out = io.StringIO()
    with Console(10, "demo", file=out, clock=Clock()) as console:
        console.update(1, {"env/return": 12.5, "eval/return": 3.0})
        console.update(2, {"train/loss": 1.0})
    last = out.getvalue().splitlines()[-1]
    assert "eval return 3" in last
    assert "12.5" not in last


def screen(data: str) -> list[str]:
    """Return what a terminal shows in the end: lines, with carriage returns, cursor-up and erase-line carried out."""
    rows, row, column = [""], 0, 0
    for token in re.findall(r"\x1b\[\??[\d;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", data):
        if token == "\r":
            column = 0
        elif token == "\n":
            row += 1
            if row == len(rows):
                rows.append("")
        elif token.endswith("A") and token.startswith("\x1b"):
            row -= int(token[2:-1] or 1)
        elif token.endswith("K"):
            rows[row] = ""
        elif not token.startswith("\x1b"):
            rows[row] = rows[row][:column].ljust(column) + token + rows[row][column + len(token) :]
            column += len(token)
    return [line.rstrip() for line in rows if line.strip()]


def run_in_terminal(body: str, environment: dict[Any, Any]) -> str:
    script = textwrap.dedent(
        """
        import logging, sys
        from rlinf.telemetry.console import Console
        early = logging.StreamHandler()  # holds the real stderr, as a handler made before training does
        logging.getLogger("rlinf").addHandler(early)
        """
    ) + textwrap.dedent(body)
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30", "RLINF_PLAIN": "", **environment},
    )
    os.close(follower)
    data = b""
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not chunk:
            break
        data += chunk
    os.close(leader)
    assert process.wait() == 0, data.decode()
    return data.decode()


BODY = """
with Console(3, "demo") as console:
    console.phase("rollout")
    for step in (1, 2, 3):
        logging.getLogger("rlinf").warning("log line %d", step)
        print("printed", step)
        print("to stderr", step, file=sys.stderr)
        console.update(step, {"env/return": step})
        console.message(f"note {step}")
    console.summary({"checkpoint": "/c"}, {})
assert early.stream is sys.stderr
print("after")
"""


def test_lines_printed_and_logged_meanwhile_stay_whole_above_the_live_line() -> None:
    data = run_in_terminal(BODY, {})
    assert "[rollout]" in data
    assert "\x1b[" in data
    expected = [line for s in (1, 2, 3) for line in (f"log line {s}", f"printed {s}", f"to stderr {s}", f"note {s}")]
    assert screen(data) == [*expected, "demo: step 3/3", "  checkpoint  /c", "after"]


def test_rlinf_plain_turns_the_live_line_off_on_a_terminal() -> None:
    data = run_in_terminal(BODY, {"RLINF_PLAIN": "1"})
    assert "\x1b" not in data
    assert "step 2/3 | return 2 | ETA" in data


def test_handlers_are_left_alone_without_a_terminal() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger("rlinf.test_console").addHandler(handler)
    with Console(1, "demo", file=io.StringIO()):
        assert handler.stream is stream
    logging.getLogger("rlinf.test_console").removeHandler(handler)
