"""One local Ray for all scheduler tests that need one."""

import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlinf.config.schema.cluster import ClusterConfig
from rlinf.scheduler import Cluster, PackedPlacementStrategy, WorkerGroup


@pytest.fixture(scope="session")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="session")
def cluster(log_dir: Path) -> Iterator[Cluster]:
    with Cluster(cluster_cfg=ClusterConfig(cpu_slots_per_node=4), log_dir=str(log_dir)) as running:
        yield running


@pytest.fixture
def launch(cluster: Cluster) -> Iterator[Callable[..., Any]]:
    """Launch groups that end with the test."""
    groups = []

    def start(
        group: WorkerGroup[Any], *, ranks: int = 2, name: str | None = None, **options: str | bool
    ) -> WorkerGroup[Any]:
        strategy = PackedPlacementStrategy(0, ranks - 1)
        groups.append(group.launch(cluster, strategy, name=name or f"g{uuid.uuid4().hex[:6]}", **options))
        return groups[-1]

    yield start
    for group in groups:
        group.close()


@pytest.fixture
def unique() -> str:
    return f"c{uuid.uuid4().hex[:6]}"


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Make the temporary folder's path have so many characters."""
    with tempfile.TemporaryDirectory(dir="/tmp") as base:

        def choose(length: int) -> Path:
            folder = Path(base) / ("x" * (length - len(base) - 1))
            folder.mkdir()
            monkeypatch.setattr(tempfile, "tempdir", str(folder))
            return folder

        yield choose
