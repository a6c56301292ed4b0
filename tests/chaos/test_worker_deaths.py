"""Workers are killed in the middle of everything: whoever depends on them is told who died, and nothing is left."""

import contextlib
import os
import random
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from chaos_workers import Chaotic

from rlinf.errors import CommTimeoutError, RLinfError, WorkerDiedError
from rlinf.scheduler import Channel, Cluster, PackedPlacementStrategy, WorkerGroup
from rlinf.scheduler.results import wait_all
from rlinf.scheduler.run_status import query_status
from tests.chaos.conftest import PROCESS_SECONDS, assert_died, assert_raises_death, kill, pid_of, wait_until_gone

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def sides(launch: Callable[..., Any]) -> tuple[Any, Any]:
    """One worker on the left and two on the right."""
    groups = (
        launch(Chaotic.create_group(), name="left", first=2, wait=False),
        launch(Chaotic.create_group(), name="right", ranks=2, wait=False),
    )
    for group in groups:
        launch.note(group.wait_ready())
    return groups


@pytest.fixture
def left(sides: Any) -> WorkerGroup[Any]:
    return sides[0]


@pytest.fixture
def right(sides: Any) -> WorkerGroup[Any]:
    return sides[1]


@pytest.fixture
def channel() -> Iterator[Channel]:
    made = Channel.create(f"c{uuid.uuid4().hex[:6]}", maxsize=2)
    yield made
    with contextlib.suppress(RLinfError):
        made.close()


def test_receives(left: WorkerGroup[Any], right: WorkerGroup[Any], chance: random.Random) -> None:
    sync = right.execute_on(0).attempt("receive", "left", 0)
    asynchronous = right.execute_on(1).attempt_async("receive_async", "left", 0)
    name = kill(left, after=chance.uniform(0, 0.3))
    for call in (sync, asynchronous):
        assert_died(call.wait(timeout=PROCESS_SECONDS)[0], name)


def test_a_stream_of_large_messages(left: WorkerGroup[Any], right: WorkerGroup[Any], chance: random.Random) -> None:
    receiving = right.drain("left", 0)
    sending = left.flood("right", [0, 1], 100_000)
    name = kill(left, after=chance.uniform(0.1, 0.6))
    for _, *outcome in receiving.wait(timeout=PROCESS_SECONDS):
        assert_died(outcome, name)
    assert_raises_death(sending, name)


def test_a_stream_to_a_receiver_that_dies(
    left: WorkerGroup[Any], right: WorkerGroup[Any], chance: random.Random
) -> None:
    right.execute_on(0).drain("left", 0)
    surviving = right.execute_on(1).drain("left", 0)
    sending = left.attempt("flood", "right", [0, 1], 100_000)
    name = kill(right, after=chance.uniform(0.1, 0.6))
    assert_died(sending.wait(timeout=PROCESS_SECONDS)[0], name)
    # The other receiver still waits for a sender that lives.
    with pytest.raises(CommTimeoutError):
        surviving.wait(timeout=0.2)


def test_several_getters_of_one_key(
    left: WorkerGroup[Any], right: WorkerGroup[Any], channel: Channel, chance: random.Random
) -> None:
    getting = right.attempt("take", channel, 1_000)
    feeding = left.then_sleep("put_all", channel, chance.randrange(5))
    here = channel.get(key="other", async_op=True, timeout=60)
    name = kill(left, after=chance.uniform(0, 0.3))
    for outcome in getting.wait(timeout=PROCESS_SECONDS):
        assert_died(outcome, name)
    assert_raises_death(feeding, name)
    # Who waits for another key does not depend on it.
    channel.put("still works", key="other")
    assert here.wait(timeout=PROCESS_SECONDS) == "still works"


def test_a_put_into_a_full_channel(
    left: WorkerGroup[Any], right: WorkerGroup[Any], channel: Channel, chance: random.Random
) -> None:
    right.execute_on(0).then_sleep("take", channel, 3)
    putting = left.attempt("put_all", channel, 1_000)
    while channel.qsize() < 2:
        time.sleep(0.02)
    name = kill(right, after=chance.uniform(0, 0.3))
    assert_died(putting.wait(timeout=PROCESS_SECONDS)[0], name)


def test_a_consumer_of_large_items(
    left: WorkerGroup[Any], right: WorkerGroup[Any], channel: Channel, chance: random.Random
) -> None:
    """What was granted to the dead consumer comes to the next one; nothing is lost or torn."""
    count = 12
    putting = left.put_large(channel, count)
    right.execute_on(0).take_large(channel, count, 0.05)
    heir = right.execute_on(1).attempt("sleep", 0)
    kill(right, after=chance.uniform(0.1, 0.4))
    heir.wait(timeout=PROCESS_SECONDS)
    taken = []
    # Until the death is noticed, later items may come before the one that is granted anew.
    with contextlib.suppress(CommTimeoutError):
        while not taken or len(taken) < count - min(taken):
            number, array = channel.get(timeout=PROCESS_SECONDS if not taken else 3)
            assert (array == number % 251).all()
            taken.append(number)
    # The producer may have been told of the death while the channel was full; what it had put is all there.
    with contextlib.suppress(WorkerDiedError):
        putting.wait(timeout=PROCESS_SECONDS)
    assert sorted(taken) == list(range(min(taken), max(taken) + 1)) if taken else True


def test_a_producer_of_large_items(
    left: WorkerGroup[Any], right: WorkerGroup[Any], channel: Channel, chance: random.Random
) -> None:
    """The items that were put are delivered after the death of who put them."""
    left.put_large(channel, 1_000)
    while channel.qsize() < 2:
        time.sleep(0.02)
    name = kill(left, after=chance.uniform(0, 0.2))
    outcome = right.execute_on(0).attempt("take_large", channel, 1_000).wait(timeout=PROCESS_SECONDS)[0]
    assert_died(outcome, name)


def test_the_source_of_a_broadcast(launch: Callable[..., Any], chance: random.Random) -> None:
    group = launch(Chaotic.create_group(), name="left", ranks=3)
    receiving = [group.execute_on(rank).attempt("share", None) for rank in (1, 2)]
    group.execute_on(0).share(np.zeros(1 << 20), 60)
    name = kill(group, after=chance.uniform(0, 0.3))
    for call in receiving:
        assert_died(call.wait(timeout=PROCESS_SECONDS)[0], name)


def test_a_receiver_of_broadcasts(launch: Callable[..., Any], chance: random.Random) -> None:
    group = launch(Chaotic.create_group(), name="left", ranks=3)
    dead = {2: False}
    group.execute_on(2).die_in(chance.uniform(0, 0.3)).wait()
    value = np.arange(1 << 18)
    for _ in range(20):
        calls = [group.execute_on(rank).attempt("share", value if rank == 0 else None, 0.03) for rank in range(3)]
        with pytest.raises(WorkerDiedError) if dead[2] else contextlib.suppress(WorkerDiedError):
            calls[2].wait(timeout=PROCESS_SECONDS)
        try:
            calls[2].wait(timeout=0.1)
        except WorkerDiedError:
            dead[2] = True
        kind, got = calls[1].wait(timeout=PROCESS_SECONDS)[0]
        assert kind == "returned"
        assert (got == value).all()
        kind, _ = calls[0].wait(timeout=PROCESS_SECONDS)[0]
        assert kind in {"returned", "WorkerDiedError"}
        if dead[2]:
            break
    assert dead[2]


def test_calls_on_two_groups_that_need_each_other(
    left: WorkerGroup[Any], right: WorkerGroup[Any], chance: random.Random
) -> None:
    receiving = right.receive("left", 0)
    sending = left.sleep(60)
    name = kill(left, after=chance.uniform(0, 0.3))
    with pytest.raises(WorkerDiedError, match=name):
        wait_all(receiving, sending, timeout=PROCESS_SECONDS)


def test_a_whole_group_at_once(left: WorkerGroup[Any], right: WorkerGroup[Any], chance: random.Random) -> None:
    receiving = left.attempt("receive", "right", 1)
    running = right.sleep(60)
    time.sleep(chance.uniform(0, 0.3))
    for rank in (0, 1):
        kill(right, rank)
    assert_raises_death(running, "right:")
    assert_died(receiving.wait(timeout=PROCESS_SECONDS)[0], "right:1")


def test_shards_of_a_dead_sender(
    left: WorkerGroup[Any], right: WorkerGroup[Any], channel: Channel, chance: random.Random
) -> None:
    receiving = right.attempt("exchange", "left", channel, False)
    left.exchange("right", channel, True)
    name = kill(left, after=chance.uniform(0.2, 0.5))
    for outcome in receiving.wait(timeout=PROCESS_SECONDS):
        assert_died(outcome, name)


def test_a_holder_and_a_waiter_of_a_lock(launch: Callable[..., Any], chance: random.Random) -> None:
    groups = [launch(Chaotic.create_group(), name=name, wait=False) for name in ("left", "right", "third")]
    for group in groups:
        launch.note(group.wait_ready())
    notes = Channel.create(f"n{uuid.uuid4().hex[:6]}")
    groups[0].hold_lock(notes, 60)
    assert notes.get(timeout=30) == 0
    groups[1].hold_lock(notes, 60)
    inheriting = groups[2].hold_lock(notes, 0)
    order = [groups[0], groups[1]]
    chance.shuffle(order)
    for group in order:
        kill(group, after=chance.uniform(0.1, 0.3))
    inheriting.wait(timeout=PROCESS_SECONDS)
    notes.close()


def test_the_owner_of_ports(
    left: WorkerGroup[Any], right: WorkerGroup[Any], cluster: Cluster, chance: random.Random
) -> None:
    taken = left.ports(3).wait()[0]
    assert len(set(taken)) == 3
    held = query_status(cluster.namespace)["leases"]["ports"]
    assert {(entry["port"], entry["holder"]) for entry in held} >= {(port, "left:0") for port in taken}
    watching = left.sleep(60)
    assert_raises_death(watching, kill(left, after=chance.uniform(0, 0.1)))
    owner = {entry["port"]: entry["holder"] for entry in query_status(cluster.namespace)["leases"]["ports"]}
    assert not set(taken) & set(owner)


def kill_starting(folder: Path, rank: int, after: float) -> threading.Thread:
    """Kill a rank a moment after its constructor was entered, from another thread."""

    def run() -> None:
        pid = pid_of(folder, rank)
        time.sleep(after)
        psutil.Process(pid).kill()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_rank_that_starts(
    cluster: Cluster, launch: Callable[..., Any], tmp_path: Path, chance: random.Random
) -> None:
    group = Chaotic.create_group(str(tmp_path), 2.0)
    killer = kill_starting(tmp_path, 1, chance.uniform(0, 0.5))
    with pytest.raises(WorkerDiedError, match="left:1"):
        group.launch(cluster, PackedPlacementStrategy(0, 1), name="left")
    killer.join()
    pids = [pid_of(tmp_path, rank) for rank in (0, 1)]
    again = launch(Chaotic.create_group(), name="left", ranks=2)
    assert [rank for rank, _ in again.identify().wait(timeout=30)] == [0, 1]
    assert not wait_until_gone(pids)


def test_a_rank_that_starts_again(launch: Callable[..., Any], tmp_path: Path, chance: random.Random) -> None:
    right = launch(Chaotic.create_group(), name="right", first=2)
    group = launch(Chaotic.create_group(str(tmp_path), 1.0), name="left", ranks=2)
    name = kill(group)
    for path in tmp_path.iterdir():
        path.unlink()
    # A relaunch that fails can itself be repeated; who waits for the group is told each time.
    killer = kill_starting(tmp_path, 0, chance.uniform(0, 0.5))
    with pytest.raises(WorkerDiedError, match=name):
        group.relaunch()
    killer.join()
    group.relaunch()
    launch.note(group)
    receiving = right.execute_on(0).attempt("receive", "left", 1)
    group.execute_on(1).flood("right", 0, 1).wait(timeout=PROCESS_SECONDS)
    kind, arrays = receiving.wait(timeout=PROCESS_SECONDS)[0]
    assert kind == "returned"
    assert arrays[0].sum() == 0


def test_a_rank_of_a_group_that_closes(launch: Callable[..., Any], chance: random.Random) -> None:
    group = launch(Chaotic.create_group(), name="left", ranks=2)
    group.execute_on(1).die_while_closing(chance.uniform(0, 0.5)).wait()
    group.execute_on(0).die_in(chance.uniform(0, 0.1)).wait()
    group.close()
    again = launch(Chaotic.create_group(), name="left", ranks=2)
    assert len(again.identify().wait(timeout=30)) == 2


def test_a_process_that_is_stopped(
    left: WorkerGroup[Any], right: WorkerGroup[Any], cluster: Cluster, chance: random.Random
) -> None:
    """It may go on one day, so nobody is told that it died; but waits have ends, and closing its group ends it."""
    receiving = right.execute_on(0).attempt("receive", "left", 0)
    call = left.sleep(chance.uniform(0, 0.3))
    os.kill(left.worker_info_list[0].pid, signal.SIGSTOP)
    with pytest.raises(CommTimeoutError, match="left:0"):
        call.wait(timeout=1)
    (told,) = [group for group in query_status(cluster.namespace)["groups"] if group["name"] == "left"]
    assert told["ranks"][0]["answers"] is False
    left.close()
    kind, text = receiving.wait(timeout=PROCESS_SECONDS)[0]
    assert (kind, "left:0" in text) == ("WorkerDiedError", True)


def test_the_host_of_channels(
    left: WorkerGroup[Any], right: WorkerGroup[Any], channel: Channel, chance: random.Random
) -> None:
    getting = right.attempt("take", channel, 1_000, "nothing")
    putting = left.attempt("put_all", channel, 1_000)
    here = channel.get(key="here", async_op=True, timeout=60)
    time.sleep(chance.uniform(0, 0.3))
    hosts = [child for child in psutil.Process().children(recursive=True) if "ChannelHost" in " ".join(child.cmdline())]
    (max(hosts, key=psutil.Process.create_time)).kill()
    for outcome in [*getting.wait(timeout=PROCESS_SECONDS), *putting.wait(timeout=PROCESS_SECONDS)]:
        assert_died(outcome, "channel host")
    with pytest.raises(WorkerDiedError, match="channel host"):
        here.wait(timeout=PROCESS_SECONDS)
    again = Channel.create(channel.name)
    right.execute_on(0).put_all(again, 1).wait(timeout=PROCESS_SECONDS)
    assert again.get(timeout=PROCESS_SECONDS) == 0
    again.close()
