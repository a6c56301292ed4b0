"""Errors become messages with a remedy, and exit codes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from rlinf.cli.errors import run_and_report
from rlinf.errors import CheckpointError, ConfigError, RewardError, RLinfError, WorkerError
from rlinf.utils.signals import Terminated


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EFBIG])
def test_faults_of_disks_are_told_with_a_remedy(capsys: pytest.CaptureFixture[str], number: int) -> None:
    def action() -> None:
        raise OSError(number, os.strerror(number), "/results/metrics.jsonl")

    assert run_and_report(action) == 1
    told = capsys.readouterr().err
    assert "/results/metrics.jsonl" in told
    assert "runner.logger.log_path" in told


@pytest.mark.parametrize(("cause", "is_shown"), [(CheckpointError("other"), False), (RewardError("raised"), True)])
def test_the_traceback_of_a_worker_is_shown_where_it_tells_more_than_the_message(
    capsys: pytest.CaptureFixture[str], cause: RLinfError, is_shown: bool
) -> None:
    def action() -> None:
        raise WorkerError(f"ActorGroup:0 failed: {cause}\n--- traceback of ActorGroup:0 ---\nTraceback") from cause

    assert run_and_report(action) == 1
    told = capsys.readouterr().err
    assert str(cause) in told
    assert ("--- traceback" in told) == is_shown


def test_a_full_disk_that_a_worker_met_is_told_with_its_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    def action() -> None:
        raise WorkerError(f"ActorGroup:0 failed: OSError: {os.strerror(errno.ENOSPC)}")

    assert run_and_report(action) == 1
    assert "Free some space" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("a.b: wrong"), 1),
        (WorkerError("failed", group="EnvGroup", rank=1), 1),
        (KeyboardInterrupt(), 130),
        (Terminated(), 143),
    ],
)
def test_typed_errors_and_interrupts_become_exit_codes(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int
) -> None:
    def action() -> None:
        raise error

    assert run_and_report(action) == code
    assert "Traceback" not in capsys.readouterr().err


def test_other_errors_are_bugs_and_pass_through() -> None:
    def action() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_and_report(action)


def test_reader_that_goes_away_is_no_crash() -> None:
    command = (
        f"{sys.executable} -c \"import sys; from rlinf.cli.main import main; sys.exit(main(['list', 'recipes']))\""
    )
    done = subprocess.run(f"{command} | true", shell=True, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
