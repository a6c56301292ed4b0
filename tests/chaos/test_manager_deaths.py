"""The manager is killed: without it nobody would be told of a death, so every wait of the run ends, everywhere."""

import contextlib
import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from chaos_workers import Chaotic

from rlinf.config.schema.cluster import ClusterConfig
from rlinf.errors import ClusterError, WorkerDiedError
from rlinf.scheduler import Channel, Cluster, PackedPlacementStrategy
from tests.chaos.conftest import NODE_SECONDS, pid_of, wait_until_gone

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def run(cluster: Cluster) -> Iterator[Cluster]:
    """A run of its own, of which nothing may be left in the end."""
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    with Cluster(cluster_cfg=ClusterConfig(cpu_slots_per_node=3)) as second:
        yield second
    started = {child.pid for child in psutil.Process().children(recursive=True) if is_ours(child)} - before
    assert not wait_until_gone(started)
    for base in ("/dev/shm", tempfile.gettempdir()):
        assert not Path(base, f"rlinf_{os.getuid()}_{second.namespace}").exists()


def is_ours(process: psutil.Process) -> bool:
    """Whether a process is a worker, a manager or a channel host; Ray keeps idle ones ready."""
    try:
        title = " ".join(process.cmdline())
    except psutil.Error:
        return False
    return any(name in title for name in ("WorkerShell", "ManagerActor", "ChannelHost"))


def kill_manager(after: float = 0.0) -> None:
    time.sleep(after)
    found = [
        child for child in psutil.Process().children(recursive=True) if "ManagerActor" in " ".join(child.cmdline())
    ]
    max(found, key=psutil.Process.create_time).kill()


def read_note(path: Path, seconds: int = NODE_SECONDS) -> str:
    deadline = time.monotonic() + seconds
    while not (path.exists() and path.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return path.read_text() if path.exists() else "still waiting"


def test_all_waits_of_all_processes_end(run: Cluster, tmp_path: Path, chance: random.Random) -> None:
    group = Chaotic.create_group().launch(run, PackedPlacementStrategy(0, 2), name="left")
    full, empty = Channel.create("full", maxsize=1), Channel.create("empty")
    full.put(0)
    waits = {
        0: ("receive", "left", 1),
        1: ("take", empty, 1),
        2: ("put_all", full, 2),
    }
    for rank, arguments in waits.items():
        group.execute_on(rank).attempt(*arguments, note=str(tmp_path / str(rank)))
    waiting_for_a_name = group.execute_on(0).attempt_async("receive_async", "nobody", 0)
    getting = empty.get(key="other", async_op=True)
    kill_manager(after=chance.uniform(0.1, 0.5))
    with pytest.raises(WorkerDiedError):
        getting.wait(timeout=NODE_SECONDS)
    # The worker may be the first to learn of it: what its own wait raised is then what the call returns.
    with contextlib.suppress(WorkerDiedError):
        assert waiting_for_a_name.wait(timeout=NODE_SECONDS)[0][0] == "WorkerDiedError"
    for rank in waits:
        note = read_note(tmp_path / str(rank))
        assert "WorkerDiedError" in note, (rank, note)
        assert "manager" in note or "channel host" in note, note
    # What comes after it does not wait either.
    with pytest.raises((WorkerDiedError, ClusterError)):
        Channel.create("more")
    with pytest.raises(WorkerDiedError, match="manager"):
        group.identify().wait(timeout=NODE_SECONDS)


def test_waits_for_a_lock_end(run: Cluster, tmp_path: Path, chance: random.Random) -> None:
    groups = [
        Chaotic.create_group().launch(run, PackedPlacementStrategy(0, 0), name=name) for name in ("left", "right")
    ]
    notes = Channel.create("notes")
    groups[0].hold_lock(notes, 60)
    assert notes.get(timeout=30) == 0
    groups[1].attempt("hold_lock", notes, 0, note=str(tmp_path / "lock"))
    kill_manager(after=chance.uniform(0, 0.3))
    assert "manager" in read_note(tmp_path / "lock")


def test_a_launch_ends(run: Cluster, tmp_path: Path, chance: random.Random) -> None:
    def kill_soon() -> None:
        pid_of(tmp_path, 0)
        kill_manager(chance.uniform(0, 0.5))

    killer = threading.Thread(target=kill_soon)
    killer.start()
    with pytest.raises(WorkerDiedError, match="manager"):
        Chaotic.create_group(str(tmp_path), 3.0).launch(run, PackedPlacementStrategy(0, 1), name="left")
    killer.join()
    assert not wait_until_gone([pid_of(tmp_path, 0)])


def test_closing_goes_on(run: Cluster, chance: random.Random) -> None:
    group = Chaotic.create_group().launch(run, PackedPlacementStrategy(0, 1), name="left")
    pids = [pid for _, pid in group.identify().wait()]
    group.sleep(60)
    killer = threading.Thread(target=kill_manager, args=(chance.uniform(0, 3.5),))
    killer.start()
    group.close()
    killer.join()
    run.close()
    assert not wait_until_gone(pids)
