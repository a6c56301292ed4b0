"""Workers that tests fork are those that Ray would have started, or are started by it."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forked_workers
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
