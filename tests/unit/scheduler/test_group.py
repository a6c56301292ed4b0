"""Calling groups of workers: results, order, errors, death, relaunch."""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from ray._private.internal_api import node_stats
from sample_workers import Quitting, Sample

from rlinf.errors import ClusterError, CommTimeoutError, RLinfError, WorkerDiedError, WorkerError
from rlinf.scheduler import Channel, Cluster, NodePlacementStrategy, Worker, WorkerGroup


@pytest.fixture(scope="module")
def pair(cluster: Cluster) -> Iterator[WorkerGroup[Any]]:
    group = Sample.create_group(10).launch(cluster, NodePlacementStrategy([0, 0]), name="pair")
    yield group
    group.close()


def test_results_come_by_rank(pair: WorkerGroup[Any]) -> None:
    assert pair.add(5).wait() == [15, 16]
    assert pair.execute_on(1).add(5).wait() == [16]
    assert pair.add(value=1).wait() == [11, 12]


def test_sync_methods_run_on_the_main_thread_in_call_order(pair: WorkerGroup[Any]) -> None:
    pending = [pair.note(index, seconds=0.02 if index % 3 == 0 else 0.0) for index in range(12)]
    for result in pending:
        result.wait()
    assert pair.noted().wait() == [list(range(12))] * 2
    assert pair.on_main_thread().wait() == [True, True]


def test_async_methods_overlap_with_sync_ones(pair: WorkerGroup[Any]) -> None:
    busy = pair.sleep(1.0)
    assert pair.later("now").wait() == ["now", "now"]
    assert not busy.done()
    busy.wait()


def test_identity_variables(pair: WorkerGroup[Any]) -> None:
    seen = pair.environ("RANK", "WORLD_SIZE", "GROUP_NAME", "WORKER_NAME", "MASTER_PORT", "LOCAL_RANK").wait()
    assert [entry["RANK"] for entry in seen] == ["0", "1"]
    assert {entry["WORLD_SIZE"] for entry in seen} == {"2"}
    assert {entry["GROUP_NAME"] for entry in seen} == {"pair"}
    assert [entry["WORKER_NAME"] for entry in seen] == ["pair:0", "pair:1"]
    assert seen[0]["MASTER_PORT"] == seen[1]["MASTER_PORT"]
    assert [entry["LOCAL_RANK"] for entry in seen] == ["0", "1"]


def test_an_error_arrives_with_its_place_and_cause(pair: WorkerGroup[Any]) -> None:
    with pytest.raises(WorkerError) as caught:
        pair.fail_on_rank(1).wait()
    error = caught.value
    assert (error.group, error.rank, error.method, error.node) == ("pair", 1, "fail_on_rank", 0)
    assert isinstance(error.__cause__, KeyError)
    assert "the reason" in error.remote_traceback
    assert pair.add(0).wait() == [10, 11]


def test_an_error_that_cannot_be_pickled_arrives_as_text(pair: WorkerGroup[Any]) -> None:
    with pytest.raises(WorkerError, match="holds a lock"):
        pair.raise_unpicklable().wait()


def test_the_first_failing_rank_raises_before_the_others_return(pair: WorkerGroup[Any]) -> None:
    busy = pair.fail_on_rank(1, others_sleep=3.0)
    with pytest.raises(WorkerError):
        busy.wait()
    late = pair.execute_on(0).noted()
    assert not late.done(), "rank 0 must still have been at work"
    late.wait()


def test_a_wait_with_a_timeout_names_the_late_ranks(pair: WorkerGroup[Any]) -> None:
    busy = pair.sleep(1.0)
    with pytest.raises(CommTimeoutError, match="pair:0"):
        busy.wait(timeout=0.1)
    assert busy.wait() == [None, None]


def test_async_wait(pair: WorkerGroup[Any]) -> None:
    import asyncio

    async def both() -> tuple[list[Any], list[Any]]:
        first, second = pair.add(0), pair.later("x", 0.1)
        return await first.async_wait(), await second.async_wait()

    assert asyncio.run(both()) == ([10, 11], ["x", "x"])


def test_an_interrupt_at_any_instant_of_a_call_breaks_nothing(pair: WorkerGroup[Any]) -> None:
    import random
    import signal

    draws = random.Random(0)
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    interrupted = 0
    try:
        for _ in range(500):
            try:
                signal.setitimer(signal.ITIMER_REAL, draws.uniform(0.00005, 0.002))
                pair.later("never seen", 0.01).wait()
            except KeyboardInterrupt:
                interrupted += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert pair.add(0).wait(timeout=30) == [10, 11]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert interrupted > 400


def test_unknown_methods_and_ranks(pair: WorkerGroup[Any]) -> None:
    with pytest.raises(AttributeError, match="add"):
        pair.ad(1)
    for rank in (2, -1):
        with pytest.raises(ValueError, match=f"0-1; there is no rank {rank}"):
            pair.execute_on(rank)


def test_chosen_ranks_are_for_the_method_that_was_named_with_them(pair: WorkerGroup[Any]) -> None:
    with pytest.raises(AttributeError, match="ad"):
        pair.execute_on(1).ad(1)
    assert pair.add(5).wait() == [15, 16], "a mistyped name must not choose the ranks of the next call"
    with pytest.raises(ZeroDivisionError):
        pair.execute_on(1).add(1 // 0)
    assert pair.add(5).wait() == [15, 16]
    second = pair.execute_on(1).add
    assert [pair.add(5).wait(), second(5).wait()] == [[15, 16], [16]]


def test_handles_are_small_and_hold_no_environment(pair: WorkerGroup[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "do-not-travel")
    data = pickle.dumps(pair)
    assert b"do-not-travel" not in data
    assert len(data) < 4000


def test_a_group_can_be_found_by_name(pair: WorkerGroup[Any]) -> None:
    assert WorkerGroup.from_group_name(Sample, "pair").add(0).wait() == [10, 11]


def test_timers_add_up(pair: WorkerGroup[Any]) -> None:
    pair.timed().wait()
    pair.timed_async().wait()
    times = pair.pop_execution_times().wait()[0]
    assert set(times) == {"timed", "inner", "async"}
    assert pair.pop_execution_times().wait() == [{}, {}]


def test_logs_go_to_one_file_per_rank(pair: WorkerGroup[Any], log_dir: Path) -> None:
    pair.say("a line to find").wait()
    text = (log_dir / "worker_logs" / "pair_1.log").read_text()
    assert "[pair:1] a line to find" in text


def test_a_rank_that_cannot_start_raises_at_launch(cluster: Cluster) -> None:
    with pytest.raises(WorkerError, match="cannot start rank 1") as caught:
        Sample.create_group(fail_on=(1,)).launch(cluster, NodePlacementStrategy([0, 0]), name="broken")
    assert caught.value.method == "__init__"
    assert isinstance(caught.value.__cause__, ValueError)
    group = Sample.create_group().launch(cluster, NodePlacementStrategy([0]), name="broken")
    assert group.add(1).wait() == [1]
    group.close()


@pytest.mark.parametrize("kind", [GeneratorExit, SystemExit])
def test_whatever_leaves_a_constructor_raises_at_launch(cluster: Cluster, kind: type[BaseException]) -> None:
    with pytest.raises(WorkerError, match="not yet") as caught:
        Quitting.create_group(kind).launch(cluster, NodePlacementStrategy([0]), name="quitting")
    assert caught.value.method == "__init__"


def test_a_lock_that_is_taken_twice_is_an_error_and_threads_take_it_in_turns(pair: WorkerGroup[Any]) -> None:
    with pytest.raises(WorkerError, match="device_lock") as caught:
        pair.execute_on(0).lock_twice().wait(timeout=30)
    assert isinstance(caught.value.__cause__, RLinfError)
    assert pair.execute_on(0).lock_in_turns().wait(timeout=30) == [["this", "other", "again"]]


def test_constructor_arguments_are_stored_once_for_all_ranks(launch: Callable[..., Any]) -> None:
    num_bytes = 8 << 20

    def stored() -> Any:
        (node,) = ray.nodes()
        stats = node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], False)
        return stats.store_stats.cumulative_created_bytes

    before = stored()
    group = launch(Sample.create_group(base=np.zeros(num_bytes, np.uint8)), ranks=3)
    assert num_bytes <= stored() - before < 2 * num_bytes
    assert [base.shape for base in group.execute_on(0, 2).given().wait()] == [(num_bytes,)] * 2


def test_a_dead_rank_fails_the_calls_on_it_and_its_name_can_be_used_again(launch: Callable[..., Any]) -> None:
    group = launch(Sample.create_group(), name="mortal")
    with pytest.raises(WorkerDiedError) as caught:
        group.execute_on(1).die().wait()
    assert (caught.value.group, caught.value.rank) == ("mortal", 1)
    with pytest.raises(WorkerDiedError):
        group.add(1).wait()
    old = group.execute_on(0).pid().wait()
    group.relaunch()
    assert group.add(1).wait() == [1, 2]
    assert group.execute_on(0).pid().wait() != old
    assert group.worker_info_list[0].address.incarnation == 2


def test_restart_on_failure_launches_again_with_its_channels(launch: Callable[..., Any], unique: str) -> None:
    group = launch(Sample.create_group(base=3), ranks=1, name="phoenix", restart="on_failure")
    seen_elsewhere = WorkerGroup.from_group_name(Sample, "phoenix")
    group.put_into_own_channel(unique, "before").wait()
    channel = Channel.connect(unique)
    with pytest.raises(WorkerDiedError):
        group.die().wait()
    # The next call is made by a new process, which goes on with the channel that the dead one created.
    group.put_into_own_channel(unique, "after").wait()
    assert group.add(1).wait() == [4]
    assert group.worker_info_list[0].address.incarnation == 2
    assert [channel.get(timeout=20), channel.get(timeout=20)] == ["before", "after"]
    assert seen_elsewhere.add(2).wait() == [5], "a handle that another process made finds the new ranks"
    with pytest.raises(ClusterError, match="exists"):
        Channel.create(unique)


def test_published_arguments_of_a_launch(launch: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    unused = []
    monkeypatch.setattr("rlinf.scheduler.group.note_unused", lambda argument, why: unused.append(argument))
    options = {"max_concurrency": 4, "isolate_gpu": True, "catch_system_failure": False}
    group = launch(Sample.create_group(2), ranks=1, disable_distributed_log=True, **options)
    assert group.add(1).wait() == [3]
    assert unused == ["launch(catch_system_failure=)", "launch(disable_distributed_log=)"]


def test_a_running_name_is_refused(cluster: Cluster, pair: WorkerGroup[Any]) -> None:
    with pytest.raises(ClusterError, match="'pair' is already running"):
        Sample.create_group().launch(cluster, NodePlacementStrategy([0]), name="pair")


def test_a_closed_group_says_so(launch: Callable[..., Any]) -> None:
    group = launch(Sample.create_group(), ranks=1)
    group.close()
    with pytest.raises(ClusterError, match="not running"):
        group.add(1)


def test_method_names_of_the_group_are_refused_at_class_creation() -> None:
    with pytest.raises(TypeError, match="close"):
        type("Clash", (Worker,), {"close": lambda self: None})


def test_a_worker_works_outside_of_a_cluster() -> None:
    worker = Sample(base=3)
    assert (worker._rank, worker._world_size) == (0, 1)
    assert str(worker.worker_address) == "Sample:0"
    assert worker.add(1) == 4
    with worker.device_lock:
        worker.log_info("fine")
