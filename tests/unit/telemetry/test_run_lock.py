"""Two processes never work in one run's folder, and no lock outlives its process."""

import errno
import fcntl
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from rlinf.errors import ConfigError, RunLockedError
from rlinf.telemetry.rundir import claim_run_dir
from rlinf.utils.logging import get_logger

# Claims the folder, starts a process that inherits every descriptor it can, and says who is there.
HOLD = """
import subprocess, sys
from rlinf.telemetry.rundir import claim_run_dir
with claim_run_dir(sys.argv[1], "exp", resume=False, overwrite=False):
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE,
                             stdout=subprocess.DEVNULL, close_fds=False)
    print(child.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that works in the folder ``exp``; its ``child`` is the pid of a process that it has started."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    process.child = int(process.stdout.readline())
    yield process
    process.kill()
    process.communicate()
    os.kill(process.child, signal.SIGKILL)


@pytest.mark.parametrize(
    "keys",
    [
        {"resume": False, "overwrite": False},
        {"resume": False, "overwrite": True},
        {"resume": True, "overwrite": False},
    ],
)
def test_a_second_launch_is_refused_and_names_who_is_there(
    tmp_path: Path, holder: subprocess.Popen[str], keys: dict[str, bool]
) -> None:
    metrics = tmp_path / "exp" / "metrics.jsonl"
    metrics.write_text('{"step": 1, "time_seconds": 1.0}\n')
    with pytest.raises(RunLockedError) as error, claim_run_dir(tmp_path, "exp", **keys):
        pass
    for part in (str(tmp_path / "exp"), f"process {holder.pid}", socket.gethostname(), "experiment_name", " -c"):
        assert part in str(error.value)
    assert isinstance(error.value, ConfigError)
    assert metrics.exists()


def test_the_lock_ends_with_its_process_though_a_child_lives_on(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    os.kill(holder.child, 0)
    with claim_run_dir(tmp_path, "exp", resume=False, overwrite=False):
        pass


def test_a_claim_within_a_claim_of_the_same_process_leaves_it_locked(tmp_path: Path) -> None:
    with claim_run_dir(tmp_path, "exp", resume=False, overwrite=False) as folder:
        with claim_run_dir(tmp_path, "exp", resume=False, overwrite=False):
            pass
        with open(folder / "run.lock") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with open(folder / "run.lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_holder_that_has_not_written_its_name_is_refused_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "exp").mkdir()
    with open(tmp_path / "exp" / "run.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(RunLockedError, match="another process"):
            claim_run_dir(tmp_path, "exp", resume=False, overwrite=False).__enter__()


def test_a_file_system_without_locks_is_warned_about_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(file: int, operation: int) -> NoReturn:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(get_logger(), "propagate", True)
    with caplog.at_level(logging.WARNING), claim_run_dir(tmp_path, "exp", resume=False, overwrite=False):
        assert "has no locks" in caplog.text
