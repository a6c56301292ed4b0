"""Groups, locks and ports: who is there, who waits, and what a death releases."""

import pytest

from rlinf.errors import ClusterError, WorkerDiedError
from rlinf.scheduler.address import EndpointInfo, WorkerAddress, WorkerInfo
from rlinf.scheduler.group_registry import GroupRegistry, Leases


def test_locks_are_granted_in_order_and_released_by_death() -> None:
    leases, granted = Leases(), []
    for owner in ("a", "b", "c"):
        leases.lock("gpu0", owner, lambda owner=owner: granted.append(owner))
    assert granted == ["a"]
    leases.release_all("b")
    leases.unlock("gpu0", "c")
    assert granted == ["a"], "only the holder can release"
    leases.release_all("a")
    assert granted == ["a", "c"]


def test_ports_belong_to_their_owner() -> None:
    leases = Leases()
    assert leases.take_port("n", 1, "a")
    assert not leases.take_port("n", 1, "b")
    assert not leases.take_port("n", 1, "a")  # It would be the same port a second time.
    leases.release_all("a")
    assert leases.take_port("n", 1, "b")


def member(rank: int, incarnation: int = 1) -> WorkerInfo:
    address = WorkerAddress("env", rank, incarnation)
    return WorkerInfo(address, rank, 0, "127.0.0.1", 1, (), (), EndpointInfo(f"u{rank}{incarnation}", "n", "ipc://x"))


def test_lookups_wait_for_all_ranks_and_find_the_newest_launch() -> None:
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


def test_a_failed_start_answers_the_launcher() -> None:
    registry, answers = GroupRegistry(), []
    group = registry.begin("env", 2)
    registry.wait_launched(group, lambda members, error: answers.append(error))
    error = WorkerDiedError("x")
    registry.gone(WorkerAddress("env", 1, 1), error)
    assert answers == [error]
