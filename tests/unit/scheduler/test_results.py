"""Waiting for the replies of many ranks: one wake-up, the first failure, nothing kept."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from rlinf.errors import CommTimeoutError, WorkerDiedError, WorkerError
from rlinf.scheduler.address import WorkerAddress, WorkerIdentity
from rlinf.scheduler.calls import RemoteFailure
from rlinf.scheduler.comm.endpoint import Reply
from rlinf.scheduler.comm.futures import Promise
from rlinf.scheduler.comm.serialization import encode
from rlinf.scheduler.results import CompletionQueue, WorkerGroupFuncResult, wait_all

RANKS = 256


class Counted(Promise):
    """A reply that counts how often it is looked at."""

    looks = 0

    def done(self) -> bool:
        Counted.looks += 1
        return super().done()

    def add_done_callback(self, callback: Any) -> None:
        Counted.looks += 1
        super().add_done_callback(callback)


def call(
    count: int, kind: type[Promise[Any]] | type[Counted] = Promise, method: str = "work"
) -> tuple[WorkerGroupFuncResult, list[Promise[Any]]]:
    futures = [kind() for _ in range(count)]
    addresses = [WorkerAddress("group", rank) for rank in range(count)]
    return WorkerGroupFuncResult(method, list(zip(addresses, futures, strict=True))), futures


def finish(future: Promise[Any], value: int | str | None) -> None:
    future.set_result(Reply((True, 0.0), encode(value)))


def fail(future: Promise[Any], error: KeyError | ValueError, rank: int) -> None:
    identity = WorkerIdentity(WorkerAddress("group", rank), 1, 0, {})
    future.set_result(Reply((False, RemoteFailure.of(error, identity, "work")), []))


def finish_slowly(futures: Any) -> None:
    for rank, future in enumerate(futures):
        finish(future, rank)
        threading.Event().wait(0.0005)


@pytest.mark.parametrize("wait", [lambda result: result.wait(), lambda result: asyncio.run(result.async_wait())])
def test_each_reply_is_looked_at_a_few_times_however_many_there_are(wait: Callable[..., Any]) -> None:
    Counted.looks = 0
    result, futures = call(RANKS, Counted)
    answering = threading.Thread(target=finish_slowly, args=(futures,))
    answering.start()
    assert wait(result) == list(range(RANKS))
    answering.join()
    assert Counted.looks <= 8 * RANKS


def test_the_wait_of_several_calls_looks_a_few_times_too() -> None:
    Counted.looks = 0
    pairs = [call(RANKS, Counted) for _ in range(2)]
    answering = [threading.Thread(target=finish_slowly, args=(futures,)) for _, futures in pairs]
    for thread in answering:
        thread.start()
    assert wait_all(*(result for result, _ in pairs)) == (list(range(RANKS)),) * 2
    assert Counted.looks <= 16 * RANKS


def test_the_first_failure_in_time_ends_the_wait() -> None:
    result, futures = call(3)
    fail(futures[2], KeyError("first"), 2)
    fail(futures[0], KeyError("second"), 0)
    assert result.done()
    for _ in range(2):
        with pytest.raises(WorkerError, match="first") as caught:
            result.wait()
        assert caught.value.rank == 2
    finish(futures[1], None)
    with pytest.raises(WorkerError, match="first"):
        asyncio.run(result.async_wait())


def test_a_death_names_the_method() -> None:
    result, futures = call(2)
    futures[1].set_exception(WorkerDiedError("gone", group="group", rank=1))
    with pytest.raises(WorkerDiedError, match=r"while group:1 ran work\(\)"):
        result.wait()


def test_waits_with_an_end_name_the_late_and_can_be_repeated() -> None:
    result, futures = call(2)
    finish(futures[0], "a")
    for _ in range(2):
        with pytest.raises(CommTimeoutError, match=r"within 0.01 s on: group:1\."):
            result.wait(timeout=0.01)
        with pytest.raises(CommTimeoutError, match=r"on: group:1\."):
            asyncio.run(result.async_wait(timeout=0.01))
        with pytest.raises(CommTimeoutError, match=r"work\(\)"):
            wait_all(result, timeout=0.01)
    finish(futures[1], "b")
    assert result.wait() == ["a", "b"]
    assert call(0)[0].wait() == []


def test_a_cancelled_wait_leaves_the_call_alone() -> None:
    result, futures = call(1)

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(result.async_wait(), 0.01)

    asyncio.run(give_up())
    finish(futures[0], 3)
    assert result.wait() == [3]


def test_calls_are_handed_out_once_each_as_they_complete() -> None:
    queue = CompletionQueue()
    queue.wait()  # Nothing is in flight.
    made = {name: call(2) for name in "abc"}
    for name, (result, _) in made.items():
        queue.add(result, name)
    assert queue.pop() == []
    for rank in (0, 1):
        threading.Timer(0.02 * (rank + 1), finish, (made["b"][1][rank], 1)).start()
    queue.wait()
    assert (made["b"][0].done(), queue.pop(), queue.pop()) == (True, ["b"], [])
    fail(made["c"][1][1], ValueError("broke"), 1)  # A failure completes a call, too.
    for future in made["a"][1]:
        finish(future, 0)
    queue.wait()
    assert queue.pop() == ["c", "a"]
    queue.add(made["a"][0], "again")  # It has completed before.
    queue.wait()
    assert queue.pop() == ["again"]
    queue.wait()


def test_a_wait_looks_at_no_call_however_many_are_in_flight() -> None:
    queue = CompletionQueue()
    calls = [call(1, Counted) for _ in range(RANKS)]
    for number, (result, _) in enumerate(calls):
        queue.add(result, number)
    Counted.looks = 0
    for _, (future,) in calls:
        threading.Timer(0.001, finish, (future, 0)).start()
    found = []
    while len(found) < RANKS:
        queue.wait()
        found += queue.pop()
    assert sorted(found) == list(range(RANKS))
    assert Counted.looks <= 4 * RANKS


def test_a_queue_keeps_no_call_that_it_has_handed_out() -> None:
    queue = CompletionQueue()
    result, (future,) = call(1)
    queue.add(result, None)
    finish(future, None)
    queue.wait()
    assert queue.pop() == [None]
    kept = weakref.ref(result)
    gc.disable()
    try:
        del result, future
        assert kept() is None
    finally:
        gc.enable()


def test_a_result_that_is_dropped_keeps_no_reply() -> None:
    result, futures = call(2)
    for future in futures:
        finish(future, None)
    result.wait()
    kept = [weakref.ref(future) for future in futures]
    gc.disable()
    try:
        del result, futures, future
        assert [ref() for ref in kept] == [None, None]
    finally:
        gc.enable()
