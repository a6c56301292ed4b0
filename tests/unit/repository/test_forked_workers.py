"""Workers that tests fork are those that Ray would have started, or are started by it."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import forked_workers
from tests.forked_scripts import Script, start_script
from tests.forked_workers import Start, worker_program

SERVER = Start([], {"PATH": "/bin", "HOME": "/root"}, "/bin/python", "/")


@pytest.mark.parametrize(
    ("name", "value", "is_like"),
    [
        ("RAY_JOB_ID", "01", True),
        ("PYTHONPATH", "/elsewhere", True),
        ("PATH", "/sbin", False),
        ("LD_LIBRARY_PATH", "/lib", False),
        ("PYTHONHASHSEED", "0", False),
        ("OMP_NUM_THREADS", "1", True),
        ("OMP_NUM_THREADS", "2", False),
    ],
)
def test_a_worker_with_other_variables_of_the_start_is_no_fork(name: str, value: str, is_like: bool) -> None:
    assert dataclasses.replace(SERVER, environment={**SERVER.environment, name: value}).is_like(SERVER) is is_like


def test_a_worker_with_another_interpreter_is_no_fork() -> None:
    assert not dataclasses.replace(SERVER, interpreter="/usr/bin/python").is_like(SERVER)


def test_rays_program_is_where_it_is_looked_for() -> None:
    assert "default_worker" in worker_program()
    assert Path(worker_program()).is_file()


def test_a_script_gets_its_arguments_and_finds_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").touch()
    script = tmp_path / "script.py"
    script.write_text("import sys, neighbour\nprint(__name__, *sys.argv)\n", encoding="utf-8")
    command = [sys.executable, forked_workers.__file__, "--run", str(script), "--steps", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["__main__", str(script), "--steps", "2"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "RAY_TMPDIR": str(tmp_path), "RLINF_TEST_MARK": "of-this-test", "PYTHONUNBUFFERED": "1"}


def write_script(folder: Path, text: str) -> str:
    (folder / "neighbour.py").touch()
    (folder / "script.py").write_text(f"import os, sys, time, neighbour\n{text}\n", encoding="utf-8")
    return str(folder / "script.py")


def test_a_forked_script_is_as_one_that_is_started(tmp_path: Path, environment: dict[str, str]) -> None:
    path = write_script(
        tmp_path,
        "print(__name__, *sys.argv, os.getcwd(), os.environ['RLINF_TEST_MARK'], 'torch' in sys.modules)\n"
        "print(os.getsid(0) == os.getpid(), repr(sys.stdin.read()), file=sys.stderr)\nsys.exit(3)",
    )
    script = start_script([path, "--steps", "2"], environment, str(tmp_path))
    assert isinstance(script, Script)
    output, _ = script.communicate(timeout=60)
    expected = ["__main__", path, "--steps", "2", str(tmp_path), "of-this-test", "True", "True", "''"]
    assert output.split() == expected
    assert script.returncode == script.poll() == 3
    assert (tmp_path / f"forked_{script.pid}").exists()


def test_a_forked_script_is_waited_for_and_killed(tmp_path: Path, environment: dict[str, str]) -> None:
    script = Script([write_script(tmp_path, "print('so far'); time.sleep(100)")], environment, str(tmp_path))
    assert script.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        script.communicate(timeout=0.1)
    script.kill()
    deadline = time.monotonic() + 60
    while script.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert script.poll() == -signal.SIGKILL
    script.kill()
    assert script.communicate()[1] is None


def test_a_script_hears_signals_and_what_it_wrote_before_is_there(tmp_path: Path, environment: dict[str, str]) -> None:
    script = Script(
        [write_script(tmp_path, "print('so far'); open('begun', 'w').close(); time.sleep(100)")],
        environment,
        str(tmp_path),
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    script.send_signal(signal.SIGINT)
    output, _ = script.communicate(timeout=60)
    assert output.startswith("so far")
    assert "KeyboardInterrupt" in output
    assert script.returncode not in {0, None}


def test_a_script_with_other_variables_of_the_start_imports_all_anew(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    path = write_script(tmp_path, "print('torch' in sys.modules, os.environ['PYTHONHASHSEED'])")
    script = start_script([path], {**environment, "PYTHONHASHSEED": "7"}, str(tmp_path))
    assert isinstance(script, subprocess.Popen)
    assert script.communicate(timeout=60)[0].split() == ["False", "7"]


def test_a_worker_that_is_ended_before_it_asks_holds_up_nobody(tmp_path: Path, environment: dict[str, str]) -> None:
    start_script([write_script(tmp_path, "print(1)")], environment, str(tmp_path)).communicate(timeout=60)
    for _ in range(2):
        with socket.socket(socket.AF_UNIX) as ended:
            ended.connect(os.environ[forked_workers.SOCKET])
    script = start_script([write_script(tmp_path, "print(2)")], environment, str(tmp_path))
    assert isinstance(script, Script), "the server lives"
    assert script.communicate(timeout=60)[0].split() == ["2"]
