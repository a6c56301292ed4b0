"""Programs of episodes: what they are given, what they leave, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlinf.agents.programs import run_program
from rlinf.errors import AgentError


def run(code: str, *, stdin: bytes = b"", **env: str) -> str:
    return asyncio.run(run_program([sys.executable, "-c", code], stdin=stdin, env=env))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for(path: Path, *, seconds: float = 20.0) -> int:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and path.read_text().strip():
            return int(path.read_text())
        time.sleep(0.02)
    raise AssertionError(f"{path} was not written in time")


def test_a_program_reads_and_writes() -> None:
    code = "import os, sys; print(sys.stdin.read().upper() + os.environ['KEY'])"
    assert run(code, stdin=b"abc", KEY="7") == "ABC7\n"
    assert run("print(1)", stdin=b"x" * (1 << 20)) == "1\n", "one that does not read is no error"


def test_the_last_of_what_it_writes_is_kept() -> None:
    output = run("import sys; sys.stdout.write('x' * (3 << 20)); print('end')")
    assert len(output) == 1 << 16
    assert output.endswith("xend\n")


def test_a_program_that_fails_says_why() -> None:
    with pytest.raises(AgentError, match=r"exit code 3.*this went wrong.*Run it by hand"):
        run("import sys; sys.stderr.write('this went wrong'); sys.exit(3)")
    with pytest.raises(AgentError, match="no-such-program"):
        asyncio.run(run_program(["no-such-program"], stdin=b"", env={}))


def test_what_it_has_started_ends_with_it(tmp_path: Path) -> None:
    file = tmp_path / "child"
    code = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(file)!r}, 'w').write(str(child.pid))\n"
    )
    begin = time.monotonic()
    run(code)
    assert time.monotonic() - begin < 20
    deadline = time.monotonic() + 10
    while is_running(wait_for(file)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(wait_for(file))


def test_cancelling_ends_it(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    code = f"import os, time; open({str(file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"

    async def check() -> int:
        task = asyncio.ensure_future(run_program([sys.executable, "-c", code], stdin=b"", env={}))
        pid = await asyncio.to_thread(wait_for, file)
        task.cancel()
        await asyncio.wait({task}, timeout=10)
        assert task.cancelled()
        return pid

    assert not is_running(asyncio.run(check()))


def test_it_does_not_outlive_the_process_that_started_it(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    inner = f"import os, time; open({str(file)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    code = (
        "import asyncio, sys\nfrom rlinf.agents.programs import run_program\n"
        f"asyncio.run(run_program([sys.executable, '-c', {inner!r}], stdin=b'', env={{}}))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": os.getcwd()})
    try:
        pid = wait_for(file)
    finally:
        parent.kill()
        parent.wait()
    deadline = time.monotonic() + 10
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(pid)


def test_descriptors_are_given_back() -> None:
    run("pass")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        run("pass")
    assert len(os.listdir("/proc/self/fd")) == before
