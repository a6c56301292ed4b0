"""Waiting for futures, and being interrupted."""

import asyncio
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from rlinf.scheduler.comm.futures import Deadlines, Promise, wait_any


def test_waiting_ends_with_the_first_result_or_in_time() -> None:
    first, second = Promise(), Promise()
    threading.Timer(0.05, second.set_result, (3,)).start()
    wait_any([first, second], None)
    assert (first.done(), second.done()) == (False, True)
    begin = time.monotonic()
    wait_any([first], 0.7)
    assert time.monotonic() - begin >= 0.7
    wait_any([first], -1)


def test_a_signal_that_another_thread_took_still_interrupts() -> None:
    """As one that comes just before the main thread goes to sleep: nothing wakes that thread."""

    def interrupt() -> None:
        time.sleep(0.2)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)

    promise = Promise()
    end = threading.Timer(60, promise.set_result, (None,))
    end.start()
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        promise.result()
    end.cancel()
    assert not promise.done(), "interrupted only once the wait was over"


@pytest.fixture
def deadlines() -> Iterator[Deadlines]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield Deadlines(loop)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_all_deadlines_fire_but_those_that_were_removed(deadlines: Deadlines) -> None:
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


def test_a_stream_of_waits_that_end_in_time_leaves_nothing(deadlines: Deadlines) -> None:
    waiting = [Future() for _ in range(10)]
    for future in waiting:
        deadlines.add(future, 600, lambda: None)
    for _ in range(5000):
        future = Future()
        deadlines.add(future, 300, lambda: None)
        deadlines.remove(future)
    assert len(deadlines) == 10
    assert len(deadlines._heap) < 500
