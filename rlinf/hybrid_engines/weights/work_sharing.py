"""Passes over memory that several threads share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

_MAX_THREADS = 4
"""Two or three of them saturate the memory."""


def share(work: Callable[[int], None], count: int, *, min_each: int = 1) -> None:
    """Do ``work`` for every number below ``count``, on as many threads as there are cores and as are worth it.

    Args:
        work: Spends its time where it lets other threads run: in torch, numpy or xxhash.
        count: How many numbers there are.
        min_each: Numbers that are worth a thread.

    Raises:
        Exception: What ``work`` raised.
    """
    numbers = iter(range(count))
    num_threads = min(_MAX_THREADS, len(os.sched_getaffinity(0)), count // min_each)
    if num_threads < 2:
        _drain(work, numbers)
        return
    # Made anew each time: a process that is forked later has no threads of its parent.
    with ThreadPoolExecutor(num_threads - 1, thread_name_prefix="rlinf-weights") as pool:
        others = [pool.submit(_drain, work, numbers) for _ in range(num_threads - 1)]
        _drain(work, numbers)
        for other in others:
            other.result()


def _drain(work: Callable[[int], None], numbers: Iterator[int]) -> None:
    # Taking the next number of a range is atomic.
    for number in numbers:
        work(number)
