"""Time-outs of many waits at once."""

import asyncio
import random
import threading
from concurrent.futures import Future

import pytest

from rlinf.scheduler.comm.deadlines import Deadlines


@pytest.fixture
def deadlines():
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield Deadlines(loop)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_all_deadlines_fire_but_those_that_were_removed(deadlines):
    fired, ended = [], threading.Event()
    futures = [Future() for _ in range(200)]
    moments = [number / 1000 for number in range(200)]
    order = list(range(200))
    random.Random(0).shuffle(order)
    for number in order:
        deadlines.add(futures[number], 0.05 + moments[number], lambda number=number: fired.append(number))
    last = Future()
    deadlines.add(last, 0.4, ended.set)
    for number in range(0, 200, 3):
        deadlines.remove(futures[number])
    assert ended.wait(20)
    assert sorted(fired) == [number for number in range(200) if number % 3]
    assert len(deadlines) == 0


def test_a_stream_of_waits_that_end_in_time_leaves_nothing(deadlines):
    waiting = [Future() for _ in range(10)]
    for future in waiting:
        deadlines.add(future, 600, lambda: None)
    for _ in range(5000):
        future = Future()
        deadlines.add(future, 300, lambda: None)
        deadlines.remove(future)
    assert len(deadlines) == 10
    assert len(deadlines._heap) < 500
