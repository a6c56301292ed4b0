"""Leases, registry, environments, shards: the scheduler's pure parts."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlinf.errors import ClusterError, WorkerDiedError
from rlinf.placement import AcceleratorType, NodeGroup, NodeInfo, PackedPlacementStrategy
from rlinf.scheduler.address import EndpointInfo, WorkerAddress, WorkerInfo
from rlinf.scheduler.environment import (
    ProcessEnvironment,
    early_variables,
    environment_hashes,
    launch_environment,
    newer_than,
    prepend_path,
)
from rlinf.scheduler.group_registry import GroupRegistry, Leases
from rlinf.scheduler.nodes import rank_nodes
from rlinf.scheduler.probe import NodeProbe
from rlinf.scheduler.sharding import batch_length, check_cut, cut, join, pieces


def test_locks_are_granted_in_order_and_released_by_death():
    leases, granted = Leases(), []
    for owner in ("a", "b", "c"):
        leases.lock("gpu0", owner, lambda owner=owner: granted.append(owner))
    assert granted == ["a"]
    leases.release_all("b")
    leases.unlock("gpu0", "c")
    assert granted == ["a"], "only the holder can release"
    leases.release_all("a")
    assert granted == ["a", "c"]


def test_ports_belong_to_their_owner():
    leases = Leases()
    assert leases.take_port("n", 1, "a")
    assert not leases.take_port("n", 1, "b")
    leases.release_all("a")
    assert leases.take_port("n", 1, "b")


def member(rank, incarnation=1):
    address = WorkerAddress("env", rank, incarnation)
    return WorkerInfo(address, rank, 0, "127.0.0.1", 1, (), (), EndpointInfo(f"u{rank}{incarnation}", "n", "ipc://x"))


def test_lookups_wait_for_all_ranks_and_find_the_newest_launch():
    registry, found = GroupRegistry(), []
    registry.lookup("env", True, lambda members, error: found.append(members))
    registry.begin("env", 2)
    registry.ready(member(0))
    assert found == []
    registry.ready(member(1))
    assert [info.rank for info in found[0]] == [0, 1]
    with pytest.raises(ClusterError, match="already running"):
        registry.begin("env", 2)
    for rank in range(2):
        registry.gone(WorkerAddress("env", rank, 1), WorkerDiedError("x"))
    assert registry.begin("env", 1).incarnation == 2
    assert registry.gone(WorkerAddress("env", 0, 1), WorkerDiedError("old news")) is None
    registry.ready(member(0, 2))
    registry.lookup("env", False, lambda members, error: found.append(members))
    assert found[1][0].address.incarnation == 2


def test_a_failed_start_answers_the_launcher():
    registry, answers = GroupRegistry(), []
    group = registry.begin("env", 2)
    registry.wait_launched(group, lambda members, error: answers.append(error))
    error = WorkerDiedError("x")
    registry.gone(WorkerAddress("env", 1, 1), error)
    assert answers == [error]


def test_environment_precedence(monkeypatch):
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


def test_only_what_a_process_reads_as_it_starts_is_set_by_ray():
    configured = {"PASSWORD": "x", "PATH": "/a", "LD_PRELOAD": "/b.so", "PYTHONHASHSEED": "5", "TZ": "UTC", "LD": "x"}
    early = {"PATH": "/a:${PATH}", "LD_PRELOAD": "/b.so", "PYTHONHASHSEED": "5", "TZ": "UTC"}
    assert early_variables(configured) == early


def test_paths_are_prepended_once():
    assert prepend_path("/a:/b", "/b:/c") == "/a:/b:/c"


class _Nodes:
    num_nodes = 1

    def get_node_group(self, label=None):
        return NodeGroup(label="cluster", node_ranks=[0], kind="accelerator", resources_per_node=[4])

    def get_node_info(self, rank):
        return NodeInfo(node_rank=0, num_accelerators=4, accelerator_type=AcceleratorType.NV_GPU)


@pytest.mark.parametrize("isolate", [True, False])
def test_every_process_knows_its_own_device(isolate):
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


def probe(node_id, rank):
    return NodeProbe(node_id, f"10.0.0.{node_id[-1]}", node_id, rank, (), 0, 2, 0, "python")


def test_node_ranks_are_given_by_all_nodes_or_none():
    named = [probe("n1", "1"), probe("n2", "0")]
    assert [entry.node_id for entry in rank_nodes(named, None, "n1")] == ["n2", "n1"]
    plain = [probe("n1", None), probe("n2", None)]
    assert [entry.node_id for entry in rank_nodes(plain, None, "n2")] == ["n2", "n1"]
    with pytest.raises(ClusterError, match="not on n2"):
        rank_nodes([probe("n1", "0"), probe("n2", None)], None, "n1")
    with pytest.raises(ClusterError, match="each once"):
        rank_nodes([probe("n1", "0"), probe("n2", "0")], None, "n1")


@dataclasses.dataclass(frozen=True)
class Batch:
    rewards: torch.Tensor
    names: list
    extra: dict
    note: str = "kept"


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 4))
def test_shards_are_contiguous_and_complete(senders, receivers, scale):
    length = receivers * scale
    shards = {receiver: [] for receiver in range(receivers)}
    for sender in range(senders):
        part = list(range(sender * length, (sender + 1) * length))
        for receiver, start, stop in pieces(sender, senders, receivers, length):
            assert stop > start
            shards[receiver] += part[start:stop]
    assert sum(shards.values(), []) == list(range(senders * length))
    assert len({len(shard) for shard in shards.values()}) == 1


def test_sizes_that_do_not_divide_show_the_arithmetic():
    with pytest.raises(ValueError, match=r"2 senders x 3 = 6 elements do not divide by 4 receivers"):
        pieces(0, 2, 4, 3)


@pytest.mark.parametrize("dim", [0, 1])
def test_batches_are_cut_and_joined(dim):
    shape = (4, 2) if dim == 0 else (2, 4)
    batch = Batch(torch.arange(8).reshape(shape), list("abcd"), {"x": (np.arange(8).reshape(shape),)})
    assert batch_length(batch, dim) == 4
    joined = join([cut(batch, 0, 1, dim), cut(batch, 1, 4, dim)], dim)
    assert torch.equal(joined.rewards, batch.rewards)
    assert joined.names == batch.names
    assert np.array_equal(joined.extra["x"][0], batch.extra["x"][0])
    assert joined.note == "kept"
    assert cut(batch, 1, 3, dim).rewards.shape[dim] == 2


def test_groups_are_not_cut_and_lengths_must_agree():
    batch = {"group_id": torch.tensor([7, 7, 8, 8]), "x": torch.zeros(4)}
    check_cut(batch, 0, 2, 4, "actor:0", 0)
    with pytest.raises(ValueError, match="inside group 7"):
        check_cut(batch, 0, 1, 4, "actor:0", 0)
    with pytest.raises(ValueError, match="batch.y: 3"):
        batch_length({"x": torch.zeros(4), "y": torch.zeros(3)}, 0)
