"""What published code asks of a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sample_workers import Sample

from rlinf.errors import ClusterError, MetricError, UnsupportedError, WorkerDiedError
from rlinf.scheduler import Worker, WorkerGroup
from rlinf.scheduler.address import WorkerIdentity

Launch = Callable[..., WorkerGroup[Any]]


def test_a_worker_knows_itself(launch: Launch) -> None:
    group = launch(Sample.create_group(), name="self")
    seen = group.describe_itself().wait()
    assert [entry["name"] for entry in seen] == ["self:0", "self:1"]
    assert [entry["info"] for entry in seen] == group.worker_info_list
    assert {entry["hardware"] for entry in seen} == {"NO_ACCEL"}
    assert all(entry["in run"] for entry in seen)


def test_workers_that_live_are_told_from_those_that_do_not(launch: Launch) -> None:
    group = launch(Sample.create_group(), name="living")
    names = ["living:0", "living:1", "living:2", "nowhere:0"]
    assert [Worker.check_worker_alive(name) for name in names] == [True, True, False, False]
    with pytest.raises(WorkerDiedError):
        group.execute_on(1).die().wait()
    assert group.execute_on(0).alive(*names).wait() == [[True, False, False, False]]
    group.close()
    assert not Worker.check_worker_alive("living:0")
    with pytest.raises(ValueError, match="'group:rank'"):
        Worker.check_worker_alive("living")


def test_published_keyword_arguments_of_messages(launch: Launch) -> None:
    group = launch(Sample.create_group(), name="published")
    assert group.exchange_published().wait() == [{"from": 1}, {"from": 0}]


def test_a_broadcast_may_be_waited_for_later(launch: Launch) -> None:
    group = launch(Sample.create_group(), ranks=3, name="later")
    seen = group.share_later("late").wait()
    assert seen == [("late", "AsyncWork")] * 3


def test_the_type_of_hardware_is_that_of_the_first_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    robots = ({"type": "Franka", "robot_ip": "10.0.0.1"},)
    worker = Worker()
    identity = WorkerIdentity(worker.worker_address, 1, 0, {}, hardware_infos=robots)
    monkeypatch.setattr("rlinf.scheduler.worker.find_runtime", lambda: type("Run", (), {"identity": identity}))
    assert worker.hardware_type == "Franka"


def test_a_worker_outside_of_a_run_has_a_name_and_no_peers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rlinf.scheduler.runtime._stack", [])
    worker = Sample()
    assert (worker.get_name(), worker.get_parent_rank(), worker.hardware_type) == ("Sample:0", 0, "NO_ACCEL")
    with pytest.raises(ClusterError, match="no run"):
        _ = worker.worker_info
    with pytest.raises(ClusterError, match="no run"):
        worker.check_worker_alive("Sample:0")


def test_the_managers_proxy_is_refused_with_a_remedy() -> None:
    with pytest.raises(UnsupportedError, match="check_worker_alive"):
        _ = Worker().manager_proxy
    assert not hasattr(Worker(), "manager_proxy")


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_lines_of_the_first_and_of_the_last_rank(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    worker, lines = Worker(), []
    worker._rank, worker._world_size = rank, 3
    monkeypatch.setattr(worker._logger, "info", lines.append)
    worker.log_on_first_rank("first")
    worker.log_on_last_rank("last")
    assert lines == [["first"], [], ["last"]][rank]


def test_the_seconds_of_one_timer() -> None:
    worker = Worker()
    for tag in ("a", "a", "b"):
        with worker.worker_timer(tag):
            pass
    assert worker.pop_execution_time("a") > 0
    with pytest.raises(MetricError, match=r"'a' has measured nothing yet; .*: b\."):
        worker.pop_execution_time("a")
    assert set(worker.pop_execution_times()) == {"b"}
