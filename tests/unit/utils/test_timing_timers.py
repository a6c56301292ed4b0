import threading
from typing import NoReturn

import pytest

from rlinf.utils.timing import Timers, TimerTotal


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_blocks_of_one_tag_add_up_and_pop_starts_again(clock: Clock) -> None:
    timers = Timers(clock=clock)
    for seconds in (1.0, 2.5):
        with timers("rollout"):
            clock.now += seconds
    with timers("train"):
        clock.now += 4
    assert timers.totals() == {"rollout": TimerTotal(3.5, 2), "train": TimerTotal(4.0, 1)}
    assert timers.pop() == {"rollout": 3.5, "train": 4.0}
    assert timers.pop() == {}


def test_a_block_that_raises_is_counted(clock: Clock) -> None:
    timers = Timers(clock=clock)

    @timers("step")
    def fail() -> NoReturn:
        clock.now += 2
        raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        fail()
    assert timers.pop_totals() == {"step": TimerTotal(2.0, 1)}


def test_nested_entries_of_one_tag_are_each_measured(clock: Clock) -> None:
    timers = Timers(clock=clock)
    timer = timers("step")
    with timer:
        clock.now += 1
        with timer:
            clock.now += 2
    assert timers.pop_totals() == {"step": TimerTotal(5.0, 2)}


def test_a_block_that_runs_over_a_pop_counts_in_the_next_one(clock: Clock) -> None:
    timers = Timers(clock=clock)
    with timers("step"):
        clock.now += 1
        assert timers.pop() == {}
    assert timers.pop() == {"step": 1.0}


def test_decorated_functions_are_measured_in_every_thread(clock: Clock) -> None:
    timers = Timers(clock=clock)
    barrier = threading.Barrier(4)

    @timers("work")
    def work() -> None:
        barrier.wait()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert timers.pop_totals() == {"work": TimerTotal(0.0, 4)}
