"""Sending and receiving between workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from sample_workers import Sample

from rlinf.errors import CommTimeoutError, WorkerDiedError, WorkerError

if TYPE_CHECKING:
    from rlinf.scheduler import Cluster
    from rlinf.scheduler.group import WorkerGroup


if TYPE_CHECKING:
    from rlinf.scheduler.group import WorkerGroup


@pytest.fixture(scope="module")
def sides(cluster: Cluster) -> Iterator[tuple[WorkerGroup[Any], WorkerGroup[Any]]]:
    from rlinf.scheduler import NodePlacementStrategy

    left = Sample.create_group().launch(cluster, NodePlacementStrategy([0, 0]), name="left")
    right = Sample.create_group().launch(cluster, NodePlacementStrategy([0]), name="right")
    yield left, right
    left.close()
    right.close()


def test_messages_keep_their_order_per_sender(sides: tuple[WorkerGroup[Any], WorkerGroup[Any]]) -> None:
    left, right = sides
    sent = left.send_all(list(range(50)), "right", 0)
    assert right.recv_all(50, "left", 1).wait() == [list(range(50))]
    assert right.recv_all(50, "left", 0).wait() == [list(range(50))]
    sent.wait()


def test_tags_select_messages_whatever_their_order(sides: tuple[WorkerGroup[Any], WorkerGroup[Any]]) -> None:
    left, right = sides
    left.execute_on(0).send_tagged("right", 0).wait()
    assert right.recv_tagged("left", 0).wait() == [["for None", "for b", "for a", "for a"]]


def test_async_receives(sides: tuple[WorkerGroup[Any], WorkerGroup[Any]]) -> None:
    left, right = sides
    pending = right.recv_async("left", 0)
    left.execute_on(0).send_all(["x"], "right", 0).wait()
    assert pending.wait() == ["x"]
    doubled = right.then_recv("left", 0)
    left.execute_on(0).send_all([21], "right", 0).wait()
    assert doubled.wait() == [42]


def test_broadcast_over_groups(sides: tuple[WorkerGroup[Any], WorkerGroup[Any]]) -> None:
    left, right = sides
    groups = [("left", None), ("right", 0)]
    one = left.share("hello", groups)
    two = right.share(None, groups, ("left", 0))
    assert one.wait() == ["hello", "hello"]
    assert two.wait() == ["hello"]


def test_tensors_in_place(sides: tuple[WorkerGroup[Any], WorkerGroup[Any]]) -> None:
    left, _ = sides
    calls = [left.execute_on(0).pass_tensor(1), left.execute_on(1).pass_tensor(0)]
    calls[0].wait()
    assert calls[1].wait() == [[[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]]


def test_arguments_and_results_may_be_tensors(sides: tuple[WorkerGroup[Any], WorkerGroup[Any]]) -> None:
    _, right = sides
    item = {"t": torch.arange(3, dtype=torch.bfloat16), "a": np.ones(2), "big": b"x" * 300_000}
    (back,) = right.echo(item).wait()
    assert torch.equal(back["t"], item["t"])
    back["t"][0] = 5
    back["a"][0] = 7
    assert back["big"] == item["big"]


def test_a_receive_that_times_out_says_who_waits_for_whom(sides: tuple[WorkerGroup[Any], WorkerGroup[Any]]) -> None:
    _, right = sides
    with pytest.raises(WorkerError, match=r"right:0 has waited since .* from left:1") as caught:
        right.recv_all(1, "left", 1, timeout=0.2).wait()
    assert isinstance(caught.value.__cause__, CommTimeoutError)


def test_a_blocked_receive_ends_when_the_sender_dies(launch: Callable[..., Any]) -> None:
    sender, receiver = launch(Sample.create_group(), ranks=1), launch(Sample.create_group(), ranks=1)
    blocked = receiver.recv_all(1, sender.name, 0)
    with pytest.raises(WorkerDiedError):
        sender.die().wait()
    with pytest.raises(WorkerDiedError) as caught:
        blocked.wait()
    assert caught.value.group == sender.name
    with pytest.raises(WorkerDiedError):
        receiver.send_all([1], sender.name, 0).wait()
    assert receiver.add(1).wait() == [1], "the receiver itself lives on"


def test_messages_of_an_old_incarnation_are_not_delivered(launch: Callable[..., Any]) -> None:
    sender, receiver = launch(Sample.create_group(), ranks=1), launch(Sample.create_group(), ranks=1)
    sender.send_all(["old"], receiver.name, 0).wait()
    receiver.add(0).wait()
    with pytest.raises(WorkerDiedError):
        sender.die().wait()
    sender.relaunch()
    sender.send_all(["new"], receiver.name, 0).wait()
    assert receiver.recv_all(1, sender.name, 0).wait() == [["new"]]


def test_a_relaunched_receiver_gets_new_messages(launch: Callable[..., Any]) -> None:
    sender, receiver = launch(Sample.create_group(), ranks=1), launch(Sample.create_group(), ranks=1)
    sender.send_all(["lost"], receiver.name, 0).wait()
    receiver.relaunch()
    sender.send_all(["kept"], receiver.name, 0).wait()
    assert receiver.recv_all(1, sender.name, 0).wait() == [["kept"]]


def test_a_rank_that_does_not_exist(sides: tuple[WorkerGroup[Any], WorkerGroup[Any]]) -> None:
    left, _ = sides
    with pytest.raises(WorkerError, match="no rank 3"):
        left.execute_on(0).send_all([1], "right", 3).wait()


def test_ports_and_locks_are_leases(launch: Callable[..., Any], unique: str) -> None:
    from rlinf.scheduler import Channel

    first = launch(Sample.create_group(), ranks=1)
    second = launch(Sample.create_group(), ranks=1)
    ports = sum(first.ports(20).wait() + second.ports(20).wait(), [])
    assert len(set(ports)) == len(ports)
    channel = Channel.create(unique)
    holding = first.hold_lock(channel, 60)
    assert channel.get(timeout=30) == ("locked", 0)
    waiting = second.hold_lock(channel, 0)
    import os
    import signal

    os.kill(first.worker_info_list[0].pid, signal.SIGKILL)
    assert waiting.wait(timeout=30) == [None]
    with pytest.raises(WorkerDiedError):
        holding.wait()
