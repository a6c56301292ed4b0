"""Nodes die, or vanish without a word: who waits for their workers is told, and the run goes on without them."""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest

from tests.chaos.conftest import left_with_mark

HERE = Path(__file__).parent
pytestmark = pytest.mark.timeout(240)


def test_the_loss_of_nodes(seed: int) -> None:
    mark = uuid.uuid4().hex
    environment = {
        name: value for name, value in os.environ.items() if name == "RAY_TMPDIR" or not name.startswith("RAY_")
    }
    environment |= {"RLINF_TEST_MARK": mark, "PYTHONPATH": f"{HERE.parents[1]}:{HERE}", "SPT_NOENV": "1"}
    driver = subprocess.Popen(
        [sys.executable, str(HERE / "node_driver.py"), str(seed)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = driver.communicate(timeout=180)
        assert driver.returncode == 0, output[-4000:]
        left = [process for process in left_with_mark(mark) if not is_an_agent_of_ray(process)]
        assert not left
    finally:
        driver.kill()
        for process in left_with_mark(mark, seconds=0):
            process.kill()


def is_an_agent_of_ray(process: psutil.Process) -> bool:
    """Ray's own agents notice the death of their raylet a minute later."""
    try:
        return "agent" in " ".join(process.cmdline()).lower()
    except psutil.NoSuchProcess:
        return True
