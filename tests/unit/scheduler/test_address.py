"""Names of workers: equality, order, and the published ways to build and read them."""

from __future__ import annotations

import pickle

import pytest

from rlinf.scheduler import WorkerAddress


def test_a_rank_may_be_a_number_a_path_or_left_out() -> None:
    assert WorkerAddress("env", 3) == WorkerAddress(root_group_name="env", ranks=[3])
    assert WorkerAddress("env") == WorkerAddress("env", []) == WorkerAddress("env", 0)
    child = WorkerAddress("env", [2, 5])
    assert (child.group_name, child.root_group_name, child.rank) == ("env", "env", 5)
    assert child != WorkerAddress("env", 5)
    assert (child.get_parent_rank(), WorkerAddress("env", 5).get_parent_rank()) == (2, 0)


def test_an_address_prints_as_its_name_and_is_read_back() -> None:
    for address, name in ((WorkerAddress("env", 3), "env:3"), (WorkerAddress("env", [2, 5]), "env:2:5")):
        assert (str(address), address.get_name()) == (name, name)
        assert WorkerAddress.from_name(name) == address == pickle.loads(pickle.dumps(address))


def test_parents_and_children() -> None:
    launched = WorkerAddress("env", 2)
    child = launched.get_child_address(5)
    assert child == WorkerAddress("env", [2, 5])
    assert child.get_parent_address() == launched
    assert launched.get_parent_address() is None
    assert child.get_child_address(1) == WorkerAddress("env", [2, 5, 1])
    assert WorkerAddress.from_parent_name_rank("env", 2) == launched
    assert WorkerAddress.from_parent_name_rank(launched.get_name(), 5) == child


@pytest.mark.parametrize("name", ["env", "env:", "env:x", ""])
def test_a_name_without_a_rank_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="'group:rank'"):
        WorkerAddress.from_name(name)


def test_launches_of_one_worker_are_equal_and_addresses_sort_by_group_and_rank() -> None:
    assert WorkerAddress("env", 1, 2) == WorkerAddress("env", 1, 3)
    assert WorkerAddress("env", 1, incarnation=2).incarnation == 2
    assert hash(WorkerAddress("env", 1, 2)) == hash(WorkerAddress("env", 1, 3))
    addresses = [WorkerAddress("b", 0), WorkerAddress("a", 10), WorkerAddress("a", 2)]
    assert [str(address) for address in sorted(addresses)] == ["a:2", "a:10", "b:0"]
