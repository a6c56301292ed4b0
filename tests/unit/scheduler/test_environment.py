"""Variables of worker processes: which wins, which are set by Ray, and each process's device."""

from typing import Any

import pytest

from rlinf.placement import AcceleratorType, NodeGroup, NodeInfo, PackedPlacementStrategy
from rlinf.scheduler.environment import (
    ProcessEnvironment,
    early_variables,
    environment_hashes,
    launch_environment,
    newer_than,
    prepend_path,
)


def test_environment_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SAME": "1", "CHANGED": "old", "PATH": "/bin:/usr/bin"}.items():
        monkeypatch.setenv(name, value)
    hashes = environment_hashes()
    assert "old" not in str(hashes)
    monkeypatch.setenv("CHANGED", "new")
    monkeypatch.setenv("ADDED", "secret")
    monkeypatch.setenv("RLINF_NODE_RANK", "3")
    newer = newer_than(hashes)
    assert newer == {"CHANGED": "new", "ADDED": "secret"}
    environment = ProcessEnvironment(
        {"A": "head", "B": "head", "C": "head", "PATH": "/head"}, {"B": "yaml", "C": "yaml"}, {"C": "launch"}
    )
    assert "secret" not in repr(ProcessEnvironment(newer, {}, {}))
    environment.apply()
    import os

    assert (os.environ["A"], os.environ["B"], os.environ["C"]) == ("head", "yaml", "launch")
    assert os.environ["PATH"] == "/head:/bin:/usr/bin"
    for name in "ABC":
        monkeypatch.delenv(name)


def test_only_what_a_process_reads_as_it_starts_is_set_by_ray() -> None:
    configured = {"PASSWORD": "x", "PATH": "/a", "LD_PRELOAD": "/b.so", "PYTHONHASHSEED": "5", "TZ": "UTC", "LD": "x"}
    early = {"PATH": "/a:${PATH}", "LD_PRELOAD": "/b.so", "PYTHONHASHSEED": "5", "TZ": "UTC"}
    assert early_variables(configured) == early


def test_paths_are_prepended_once() -> None:
    assert prepend_path("/a:/b", "/b:/c") == "/a:/b:/c"


class _Nodes:
    num_nodes = 1

    def get_node_group(self, label: Any = None) -> NodeGroup:
        return NodeGroup(label="cluster", node_ranks=[0], kind="accelerator", resources_per_node=[4])

    def get_node_info(self, rank: int) -> NodeInfo:
        return NodeInfo(node_rank=0, num_accelerators=4, accelerator_type=AcceleratorType.NV_GPU)


@pytest.mark.parametrize("isolate", [True, False])
def test_every_process_knows_its_own_device(isolate: bool) -> None:
    placements = PackedPlacementStrategy(0, 3).get_placement(_Nodes(), isolate)
    ids = [f"GPU-{number}" for number in range(4)]
    seen = [
        launch_environment("actor", placement, placements, "ns", [ids[int(i)] for i in placement.visible_accelerators])
        for placement in placements
    ]
    assert [entry["LOCAL_RANK"] for entry in seen] == ["0", "1", "2", "3"]
    assert [entry["LOCAL_ACCELERATOR_RANK"] for entry in seen] == ["0", "1", "2", "3"]
    assert seen[2]["VISIBLE_DEVICES"] == ("2" if isolate else "0,1,2,3")
    assert seen[2]["CUDA_VISIBLE_DEVICES"] == ("GPU-2" if isolate else ",".join(ids))
