"""Waits that are given up at random moments: no item is lost, none comes twice, none out of order."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest

from rlinf.errors import CommTimeoutError, RLinfError, WorkerDiedError
from rlinf.scheduler import Channel, Cluster, Worker, WorkerGroup
from rlinf.scheduler.comm.work import AsyncWork
from rlinf.scheduler.run_status import query_status
from tests.chaos.conftest import PROCESS_SECONDS, kill

pytestmark = pytest.mark.timeout(180)

COUNT = 150
# Travels through shared memory.
LARGE = 1 << 18


class Fickle(Worker):
    """Waits that it gives up, for items that others put and send."""

    def feed(self, channel: Channel | None, group: str, start: int, chance: random.Random) -> None:
        """Put and send numbers in order, now and then one that is large."""
        for number in range(start, start + COUNT):
            time.sleep(chance.uniform(0, 0.004))
            payload = np.full(LARGE, number % 251, np.uint8) if chance.random() < 0.2 else None
            if channel is not None:
                channel.put((number, payload))
            else:
                self.send((number, payload), group, 0)

    async def poll(
        self, channel: Channel | None, group: str, chance: random.Random, count: int = COUNT
    ) -> tuple[list[Any], int]:
        """Take numbers with time-outs as long as they are apart, on a loop that is busy at times."""
        got, given_up = [], 0
        while len(got) < count:
            try:
                work = channel.get(async_op=True) if channel else self.recv(group, 0, async_op=True)
                number, payload = await asyncio.wait_for(work.async_wait(), chance.uniform(0, 0.006))
            except TimeoutError:
                given_up += 1
                if chance.random() < 0.3:
                    time.sleep(chance.uniform(0, 0.01))
                continue
            assert payload is None or (payload == number % 251).all(), f"item {number} is torn"
            got.append(number)
        return got, given_up

    def drop(self, channel: Channel | None, group: str, chance: random.Random) -> list[Any]:
        """Take numbers, dropping the work of every other wait."""
        got = []
        while len(got) < COUNT:
            work = channel.get(async_op=True) if channel else self.recv(group, 0, async_op=True)
            with contextlib.suppress(CommTimeoutError):
                if chance.random() < 0.5:
                    got.append(work.wait(timeout=chance.uniform(0, 0.006))[0])
                else:
                    time.sleep(chance.uniform(0, 0.004))
            del work
        return got

    async def put_or_not(self, channel: Channel, chance: random.Random) -> list[Any]:
        """Put numbers into a full channel; return those whose wait did not time out."""
        put = []
        for number in range(COUNT):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(channel.put(number, async_op=True).async_wait(), chance.uniform(0, 0.006))
                put.append(number)
        return put

    def take_slowly(self, channel: Channel, chance: random.Random) -> list[Any]:
        got, patience = [], 10.0
        with contextlib.suppress(RLinfError):
            while True:
                got.append(channel.get(timeout=patience))
                # A put whose wait was given up may still arrive.
                patience = 1.0 if got[-1] == "end" else patience
                time.sleep(chance.uniform(0, 0.004))
        return got


class Interrupts:
    """Interrupt waits again and again, as a notebook's stop button does.

    One that has ended has given its item to the caller, and one that has not begun is not under test: those are left
    alone, and a later one is interrupted. It takes the signal that limits the time of tests: they limit theirs.
    """

    def __init__(self) -> None:
        self.count = 0
        self._work: AsyncWork[Any] | None = None

    def __enter__(self) -> Interrupts:
        self._before = signal.signal(signal.SIGALRM, self._ring)
        return self

    def __exit__(self, *exc: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def wait(self, work: AsyncWork[Any], after: float) -> Any:
        """Return what the work has brought; None if it was interrupted, a number of seconds from now or later."""
        self._work = work
        signal.setitimer(signal.ITIMER_REAL, after)
        try:
            return work.wait()
        except KeyboardInterrupt:
            self.count += 1
            return None
        finally:
            self._work = None

    def _ring(self, _: object, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        # To look at a frame's variables would keep alive what they hold, such as the error of an earlier interrupt.
        while frame is not None and frame.f_code is not _WAIT:
            frame = frame.f_back
        if frame is not None and self._work is not None and self._work._outcome is None:
            raise KeyboardInterrupt


_WAIT = inspect.unwrap(AsyncWork.wait).__code__


@pytest.fixture
def sides(launch: Callable[..., Any]) -> list[WorkerGroup[Any]]:
    return [launch(Fickle.create_group(), name=name, first=place) for place, name in enumerate(("left", "right"))]


@pytest.fixture(params=["channel", "messages"])
def way(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Channel | None]:
    made = Channel.create(f"c{uuid.uuid4().hex[:6]}", maxsize=5) if request.param == "channel" else None
    yield made
    if made is not None:
        made.close()


@pytest.fixture
def channel(cluster: Cluster) -> Iterator[Channel]:
    made = Channel.create(f"c{uuid.uuid4().hex[:6]}", maxsize=2)
    yield made
    made.close()


def test_time_outs_on_an_event_loop(sides: Any, way: Channel | None, chance: random.Random) -> None:
    left, right = sides
    feeding = left.feed(way, "right", 0, chance)
    ((got, given_up),) = right.poll(way, "left", chance).wait(timeout=120)
    feeding.wait(timeout=PROCESS_SECONDS)
    assert got == list(range(COUNT))
    assert given_up


def test_work_that_is_dropped(sides: Any, way: Channel | None, chance: random.Random) -> None:
    left, right = sides
    feeding = left.feed(way, "right", 0, chance)
    assert right.drop(way, "left", chance).wait(timeout=120) == [list(range(COUNT))]
    feeding.wait(timeout=PROCESS_SECONDS)


def test_several_that_give_up_share_all_items(sides: Any, channel: Channel, chance: random.Random) -> None:
    left, right = sides
    feeding = left.feed(channel, "right", 0, chance)
    polling = right.poll(channel, "left", chance, count=COUNT // 2)

    async def poll() -> list[Any]:
        got = []
        while len(got) < COUNT // 2:
            with contextlib.suppress(TimeoutError):
                work = channel.get(async_op=True)
                got.append((await asyncio.wait_for(work.async_wait(), chance.uniform(0, 0.006)))[0])
        return got

    mine = asyncio.run(asyncio.wait_for(poll(), 120))
    ((theirs, _),) = polling.wait(timeout=120)
    feeding.wait(timeout=PROCESS_SECONDS)
    assert sorted(mine + theirs) == list(range(COUNT))


def test_puts_that_time_out(sides: Any, channel: Channel, chance: random.Random) -> None:
    left, right = sides
    taking = right.take_slowly(channel, chance)
    (put,) = left.put_or_not(channel, chance).wait(timeout=120)
    channel.put("end")
    until_taken = time.monotonic() + 30
    while not channel.empty() and time.monotonic() < until_taken:
        time.sleep(0.05)
    (got,) = taking.wait(timeout=60)
    numbers = [number for number in got if number != "end"]
    assert numbers == sorted(set(numbers)), "none comes twice or out of order"
    # One whose wait timed out while a consumer had its item already may be there in addition.
    assert set(put) <= set(numbers)


def test_interrupts_lose_nothing(sides: Any, channel: Channel, chance: random.Random) -> None:
    """In the driver; a worker's waits are interrupted by nothing but its end."""
    feeding = sides[0].feed(channel, "right", 0, chance)
    got, until = [], time.monotonic() + 120
    with Interrupts() as interrupts:
        while len(got) < COUNT and time.monotonic() < until:
            item = interrupts.wait(channel.get(async_op=True, timeout=60), chance.uniform(0.0005, 0.02))
            got += [] if item is None else [item[0]]
    assert got == list(range(COUNT))
    feeding.wait(timeout=PROCESS_SECONDS)
    assert interrupts.count


def test_a_consumer_that_dies_with_items_that_it_has_not_taken(
    sides: Any, channel: Channel, chance: random.Random
) -> None:
    """What had arrived at it and was not waited for goes to the next consumer; none is lost, none comes twice."""
    left, right = sides
    feeding = left.feed(channel, "right", 0, chance)
    polling = right.poll(channel, "left", chance, count=10_000)
    time.sleep(chance.uniform(0.05, 0.3))
    kill(right)
    with pytest.raises(WorkerDiedError):
        polling.wait(timeout=PROCESS_SECONDS)
    got = []
    with contextlib.suppress(CommTimeoutError, WorkerDiedError):
        while not got or got[-1] < COUNT - 1:
            got.append(channel.get(timeout=PROCESS_SECONDS)[0])
    with contextlib.suppress(RLinfError):
        feeding.wait(timeout=PROCESS_SECONDS)
    # This process may hear of the death before the channel's host, and take a later item before the others come back.
    assert sorted(got) == list(range(min(got), max(got) + 1)) if got else True


def test_nothing_of_it_is_left_at_the_host(
    sides: Any, cluster: Cluster, channel: Channel, chance: random.Random
) -> None:
    left, right = sides
    feeding = left.feed(channel, "right", 0, chance)
    right.poll(channel, "left", chance).wait(timeout=120)
    feeding.wait(timeout=PROCESS_SECONDS)
    deadline = time.monotonic() + PROCESS_SECONDS
    while time.monotonic() < deadline:
        (told,) = [entry for entry in query_status(cluster.namespace)["channels"] if entry["name"] == channel.name]
        if not told["keys"]:
            break
        time.sleep(0.1)
    assert told["keys"] == []
