"""What programs can do in the sandbox, and what is left of them afterwards."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hostile_programs import ATTEMPTS, GREEDY, LINGERING, filled

from rlinf.errors import RewardError
from rlinf.workers.reward.sandbox import Sandbox, SandboxLimits

PLACES = ["/", "/tmp", "/usr", "/dev/shm"]


@pytest.fixture(scope="module")
def sandbox():
    sandbox = Sandbox(SandboxLimits(timeout_seconds=60.0))
    try:
        sandbox.run({"main.py": ""})
    except RewardError as error:
        sandbox.close()
        pytest.skip(f"programs cannot be isolated on this machine: {error}")
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module")
def threads():
    with ThreadPoolExecutor(4) as threads:
        yield threads


def programs_left():
    """Return the processes that run a sandbox's program or launcher."""
    left = []
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit():
                command = (folder / "cmdline").read_bytes()
                if b"/tmp/main.py" in command or b"sandbox_launcher.py" in command:
                    left.append(f"{folder.name}: {command!r}")
    return left


def assert_nothing_left():
    """The kernel needs a moment to end a namespace."""
    deadline = time.monotonic() + 30
    while (left := programs_left()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def test_a_program_reads_prints_and_writes_in_its_own_folder(sandbox):
    program = "print(input()[::-1])\nopen('own', 'w').write('x')\nexit(3)"
    outcome = sandbox.run({"main.py": program, "other.py": ""}, "olleh\n")
    assert outcome.output == b"hello\n"
    assert outcome.exit_code == 3
    assert not Path("/tmp/own").exists()


def test_no_attempt_to_get_out_succeeds(sandbox, threads, tmp_path):
    mark = tmp_path / "mark"
    before = {place: set(os.listdir(place)) for place in PLACES}
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        inserted = {"mark": str(mark), "port": server.getsockname()[1], "pid": os.getpid()}
        outcomes = threads.map(
            lambda program: sandbox.run({"main.py": filled(program, **inserted)}), list(ATTEMPTS.values())
        )
        told = {name: outcome.output for name, outcome in zip(ATTEMPTS, outcomes, strict=True)}
        assert {name: output for name, output in told.items() if output} == {}
        with pytest.raises(BlockingIOError):
            server.accept()
    assert not mark.exists()
    assert "rlinf-mark" not in {name for place in PLACES for name in set(os.listdir(place)) - before[place]}
    assert_nothing_left()


def test_what_would_be_an_escape_is_noticed():
    """The same attempts without isolation: enough of them succeed to show that they are real."""
    sandbox = Sandbox(SandboxLimits(timeout_seconds=60.0), isolate=False)
    for name in ("reads users", "kills the tests"):
        program = filled(ATTEMPTS[name], mark="/x", port=1, pid=os.getpid())
        assert sandbox.run({"main.py": program}).output == b"ESCAPED\n", name
    sandbox.close()


@pytest.mark.usefixtures("sandbox")
def test_greedy_programs_are_ended(threads):
    brief = Sandbox(SandboxLimits(timeout_seconds=2.0, memory_bytes=256 << 20))
    outcomes = list(threads.map(lambda program: brief.run({"main.py": program}), GREEDY.values()))
    brief.close()
    assert [name for name, outcome in zip(GREEDY, outcomes, strict=True) if outcome.exit_code == 0] == []
    assert max(len(outcome.output) for outcome in outcomes) <= 1 << 20
    assert_nothing_left()


@pytest.mark.parametrize("isolate", [True, False])
def test_what_a_program_leaves_behind_ends_with_it(sandbox, isolate):
    own = sandbox if isolate else Sandbox(sandbox.limits, isolate=False)
    for name, program in LINGERING.items():
        assert own.run({"main.py": program}).exit_code == 0, name
    assert_nothing_left()
    if not isolate:
        own.close()


def test_programs_do_not_meet(sandbox, threads):
    """Each has processes, files and limits of its own, although all run at once."""
    program = (
        "import os, time\n"
        "if os.fork() == 0: time.sleep(0.5); os._exit(0)\n"
        "print(sorted(os.listdir('.')), len([p for p in os.listdir('/proc') if p.isdigit()]))\n"
        "open(str(time.time_ns()), 'w')\n"
    )
    outcomes = list(threads.map(lambda _: sandbox.run({"main.py": program}), range(4)))
    assert {outcome.output for outcome in outcomes} == {b"['main.py'] 3\n"}


def test_no_folder_stays(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sandbox = Sandbox(SandboxLimits(), isolate=False)
    sandbox.run({"main.py": "open('left', 'w')"})
    sandbox.close()
    assert list(tmp_path.iterdir()) == []
