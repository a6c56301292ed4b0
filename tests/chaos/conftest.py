"""What the chaos tests share: seeds, one local Ray, and checks that nothing is left behind."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlinf.config.schema.cluster import ClusterConfig
from rlinf.errors import WorkerDiedError
from rlinf.scheduler import Cluster, PackedPlacementStrategy, WorkerGroup
from rlinf.scheduler.run_status import query_status
from tests.e2e.conftest import start_run

__all__ = ["start_run"]

# A long run repeats each scenario with so many seeds: more than 100 runs in all.
LONG_SEEDS = 4
# The death of a process is to be known within 5 s and that of a node within 20 s; tests share the machine with others.
PROCESS_SECONDS = 10
NODE_SECONDS = 30


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        metafunc.parametrize("seed", range(LONG_SEEDS if metafunc.config.getoption("--long") else 1))


@pytest.fixture
def chance(request: pytest.FixtureRequest, seed: int) -> random.Random:
    """The random moments of this test."""
    return random.Random(request.node.name)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with Cluster(cluster_cfg=ClusterConfig(cpu_slots_per_node=3)) as running:
        yield running


@pytest.fixture
def launch(cluster: Cluster) -> Iterator[Callable[..., Any]]:
    """Launch groups under few names, so that most launches follow upon a death under the same name.

    Afterwards nothing of them may be left: no process, shared memory, socket, lock or port.
    """
    groups, pids, uids = [], set(), set()

    def start(group: WorkerGroup[Any], *, name: str, ranks: int = 1, first: int = 0, wait: bool = True) -> Any:
        groups.append(group.launch(cluster, PackedPlacementStrategy(first, first + ranks - 1), name=name, wait=wait))
        note(groups[-1])
        return groups[-1]

    def note(group: Any) -> None:
        pids.update(member.pid for member in group.worker_info_list)
        uids.update(member.endpoint.uid for member in group.worker_info_list)

    start.note = note
    yield start
    for group in groups:
        group.close()
    assert not wait_until_gone(pids)
    for path in (run_folder(cluster, Path("/dev/shm")), run_folder(cluster, Path(tempfile.gettempdir()))):
        left = {entry.name.removesuffix(".d") for entry in path.iterdir()} & uids if path.exists() else set()
        assert not left, f"left of dead workers in {path}: {left}"
    leases = query_status(cluster.namespace)["leases"]
    assert leases == {"locks": [], "ports": []}


def run_folder(cluster: Cluster, base: Path) -> Path:
    return base / f"rlinf_{os.getuid()}_{cluster.namespace}"


def wait_until_gone(pids: set[int] | list[int], seconds: int = 15) -> list[int]:
    """Wait until processes have ended; return those that have not."""
    deadline = time.monotonic() + seconds
    while (left := [pid for pid in pids if is_alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill(group: Any, rank: int = 0, *, after: float = 0.0) -> str:
    """SIGKILL a worker; returns its name, which errors must hold."""
    time.sleep(after)
    psutil.Process(group.worker_info_list[rank].pid).kill()
    return f"{group.name}:{rank}"


def assert_died(outcome: Any, name: str) -> None:
    """The worker's own wait has raised, naming what died."""
    kind, text = outcome
    assert kind == "WorkerDiedError", outcome
    assert name in text, text


def assert_raises_death(call: Any, name: str, seconds: int = PROCESS_SECONDS) -> None:
    with pytest.raises(WorkerDiedError) as caught:
        call.wait(timeout=seconds)
    assert name in str(caught.value)


def pid_of(folder: Path, rank: int) -> int:
    """Return the process of a rank as soon as its constructor has been entered."""
    deadline = time.monotonic() + 30
    path = folder / f"pid_{rank}"
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return int(path.read_text())


def left_with_mark(mark: str, seconds: int = 20) -> list[psutil.Process]:
    """Wait until the processes that inherited a mark have ended; return those that have not."""
    deadline = time.monotonic() + seconds
    while True:
        left = [process for process in psutil.process_iter() if has_mark(process, mark)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.2)


def has_mark(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get("RLINF_TEST_MARK") == mark and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
