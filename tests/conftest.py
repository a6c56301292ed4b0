"""Options and markers of the whole test suite: a test whose hardware or package is missing is skipped, saying why."""

from __future__ import annotations

import ctypes.util
import faulthandler
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator

import pytest

from tests.areas import AreaReport, place_of
from tests.forked_workers import fork_workers

# What a shell starts in the background ignores Ctrl-C, and so would the runs that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No test may reach for a model hub.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# MuJoCo reads it once, when it is imported: tests that render share their process with those that do not.
os.environ.setdefault("MUJOCO_GL", "egl" if ctypes.util.find_library("OSMesa") is None else "osmesa")

PACKAGES = {
    "metaworld": ("metaworld", "mujoco"),
    "maniskill": ("mani_skill",),
    "libero": ("libero", "robosuite", "bddl"),
    "vllm": ("vllm",),
    "sglang": ("sglang",),
    "wandb": ("wandb",),
    "swanlab": ("swanlab",),
    "lerobot": ("lerobot",),
    "frameworks": ("langchain_openai", "agents", "smolagents"),
    "browser": ("selenium",),
}
# A test that has run out of time gets this long to clean up; then its process ends, and says where it was.
GRACE_SECONDS = float(os.environ.get("RLINF_TEST_GRACE_SECONDS", "120"))
STDERR = pytest.StashKey[int]()
# The names that Debian and Ubuntu give them.
BROWSER_PROGRAMS = ("chromium", "chromedriver")
# Those whose packages have an environment of their own, which this makes.
GUESTS = {"vllm", "sglang", "maniskill", "libero", "calvin", "wandb", "swanlab", "lerobot", "frameworks"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")
    parser.addoption("--long", action="store_true", help="repeat learning and chaos tests with more seeds")
    parser.addoption("--must-run", action="store_true", help="fail where all tests are skipped")
    parser.addoption("--areas", action="store_true", help="print what each area's tests cost")


def pytest_configure(config: pytest.Config) -> None:
    """Give each of several test processes a Ray of its own, whose sockets need a short path."""
    config.stash[STDERR] = os.dup(2)  # that of a test is captured
    if config.getoption("--areas"):
        config.pluginmanager.register(AreaReport())
    if hasattr(config, "workerinput"):
        os.environ["RAY_TMPDIR"] = folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End the process of a test that its time limit does not end: what the limit raises is lost inside of Ray's calls.

    With several test processes the others go on, and another one takes the place of this.
    """
    marker = item.get_closest_marker("timeout")
    limit = float(marker.args[0] if marker and marker.args else item.config.getini("timeout"))
    end_process_after(limit + GRACE_SECONDS, item.config)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Give what comes after a failure its limit: pytest has just taken away both that it had."""
    if isinstance(node, pytest.Item):
        end_process_after(GRACE_SECONDS, node.config)


def end_process_after(seconds: float, config: pytest.Config) -> None:
    """Have this process say where its threads are, and end, unless that is cancelled before."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=config.stash[STDERR])


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail with ``--must-run`` where nothing ran: an environment that skips its tests shows nothing."""
    if exitstatus or not session.config.getoption("--must-run"):
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not reporter.stats.get("passed"):
        reporter.write_line("--must-run: no test ran; the reasons stand above.", red=True)
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED


def pytest_collection_finish() -> None:
    """Prepare for tests that start Ray; none of the others waits for its import."""
    if "ray" in sys.modules:
        fork_workers()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: place_of(item.nodeid))
    for item in items:
        for marker in {mark.name for mark in item.iter_markers()}:
            reason = missing(marker, slow=config.getoption("--slow"))
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


def missing(marker: str, *, slow: bool) -> str | None:
    """Return why a test with this marker cannot run here, or None if it can."""
    if marker == "slow":
        return None if slow else "slow: give --slow to run it"
    if marker == "gpu":
        import torch

        return None if torch.cuda.is_available() else "gpu: no CUDA device on this machine"
    if marker == "multinode":
        able = os.geteuid() == 0 and shutil.which("ip") is not None
        return None if able else "multinode: needs root and the 'ip' command to make network namespaces"
    if marker == "browser" and not all(map(shutil.which, BROWSER_PROGRAMS)):
        return f"browser: {' or '.join(BROWSER_PROGRAMS)} not found; run: bash requirements/install.sh test"
    if marker == "calvin" and os.environ.get("RLINF_GUEST_PYTHON") is None and not is_installed("pybullet"):
        return "calvin: pybullet not installed, and RLINF_GUEST_PYTHON names no interpreter with it; run: " + (
            "bash tests/run_tests.sh --with calvin"
        )
    if marker == "calvin" and os.environ.get("RLINF_CALVIN_ENV") is None:
        return "calvin: RLINF_CALVIN_ENV names no copy of mees/calvin_env"
    absent = [package for package in PACKAGES.get(marker, ()) if not is_installed(package)]
    if absent:
        command = f"bash tests/run_tests.sh --with {marker}" if marker in GUESTS else f"pip install 'rlinf[{marker}]'"
        return f"{marker}: {', '.join(absent)} not installed; run: {command}"
    return None


def is_installed(package: str) -> bool:
    """Return whether a package can be imported; a folder of tests that has its name is none."""
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None
