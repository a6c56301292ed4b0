"""A test that its time limit does not end, as in Ray's calls, ends with its process, and the other tests go on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).parents[3]
# What ``ray.get`` does with an exception of a signal's handler: it waits on.
STUCK = """
import signal
import threading

import pytest


def wait_on():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    threading.Event().wait()


@pytest.fixture
def stuck_at_its_end():
    yield
    wait_on()


@pytest.mark.timeout(0.5)
def test_stuck():
    wait_on()


@pytest.mark.timeout(60)
def test_stuck_after_a_failure(stuck_at_its_end):
    raise AssertionError


def test_other():
    pass
"""


def run_pytest(folder: Path, tests: str, *arguments: str) -> tuple[str, str]:
    """Run tests under the hooks of this suite, with a second of grace; return what came to both outputs."""
    file = folder / "test_limits.py"
    file.write_text(tests)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", *arguments, str(file)],
        env={**os.environ, "RLINF_TEST_GRACE_SECONDS": "1", "PYTHONPATH": str(REPO)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout, done.stderr


def test_a_stuck_process_ends_and_says_where_it_was(tmp_path: Path) -> None:
    output, errors = run_pytest(tmp_path, STUCK, "-n", "2", "-o", "timeout=300")
    for name in ("test_stuck", "test_stuck_after_a_failure"):
        assert re.search(rf"crashed while running '.*::{name}'", output), output + errors
    assert "1 passed" in output
    assert "in wait_on" in errors


def test_a_limit_that_bites_leaves_the_process_alone(tmp_path: Path) -> None:
    slow = "import time\n\n\ndef test_a():\n    time.sleep(1.5)\n\n\ndef test_b():\n    time.sleep(1.5)\n"
    output, errors = run_pytest(tmp_path, slow, "-o", "timeout=1")
    assert "2 failed" in output, output + errors
    assert "Timeout (>1.0s) from pytest-timeout" in output
