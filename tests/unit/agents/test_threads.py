"""Functions of users, called from an event loop: they may block, hang, raise and want to end the process."""

from __future__ import annotations

import asyncio
import sys
import threading
from unittest.mock import ANY

import pytest

from rlinf.agents import threads
from rlinf.agents.threads import UserFunction, call_in_thread


def test_a_function_runs_in_a_thread_of_its_own() -> None:
    def where(a: int, *, b: int) -> tuple[int, bool]:
        return a + b, threading.current_thread() is threading.main_thread()

    assert asyncio.run(call_in_thread(where, 1, b=2)) == (3, False)


def test_exceptions_are_raised_and_exits_do_not_end_the_process() -> None:
    with pytest.raises(ZeroDivisionError):
        asyncio.run(call_in_thread(lambda: 1 // 0))
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        asyncio.run(call_in_thread(sys.exit, 3))
    with pytest.raises(RuntimeError, match="StopIteration"):
        asyncio.run(call_in_thread(next, iter(())))


def test_a_thread_that_returns_after_its_caller_left_is_ignored() -> None:
    free = threading.Event()

    async def leave() -> None:
        task = asyncio.ensure_future(call_in_thread(free.wait, 60))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        free.set()
        await asyncio.sleep(0.05)

    asyncio.run(leave())


def test_threads_are_used_again_and_one_that_hangs_is_not_waited_for() -> None:
    free = threading.Event()

    async def call() -> None:
        first = await call_in_thread(threading.current_thread)
        while not threads._THREADS._idle:
            await asyncio.sleep(0.001)
        hanging = asyncio.ensure_future(call_in_thread(lambda: free.wait(60) and threading.current_thread()))
        await asyncio.sleep(0)
        other = await call_in_thread(threading.current_thread)
        free.set()
        assert other is not await hanging
        assert (await hanging) is first

    threads._THREADS._idle.clear()
    asyncio.run(call())


def test_calls_of_a_quick_function_that_come_together_share_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_QUICK_SECONDS", 60.0)  # however busy the machine is
    function = UserFunction(threading.current_thread)

    async def call() -> set[threading.Thread]:
        return set(await asyncio.gather(*(function() for _ in range(20))))

    for _ in range(2):  # an event loop each
        (thread,) = asyncio.run(call())
        assert thread is not threading.main_thread()


def test_each_call_of_a_batch_gets_its_own_result_or_error() -> None:
    function = UserFunction(lambda divisor: 6 // divisor)

    async def call() -> list[int | BaseException]:
        return await asyncio.gather(*map(function, (1, 0, 2)), return_exceptions=True)

    first, error, last = asyncio.run(call())
    assert (first, last) == (6, 3)
    assert isinstance(error, ZeroDivisionError)


def test_calls_that_come_during_a_batch_are_made_after_it() -> None:
    begun, free = threading.Event(), threading.Event()

    def respond(number: int) -> int:
        begun.set()
        assert free.wait(60)
        return number

    async def call() -> None:
        function = UserFunction(respond)
        first = asyncio.ensure_future(function(0))
        while not begun.is_set():
            await asyncio.sleep(0)
        second = asyncio.ensure_future(function(1))
        await asyncio.sleep(0)
        free.set()
        assert [await first, await second, await function(2)] == [0, 1, 2]

    asyncio.run(asyncio.wait_for(call(), 30))


def test_a_call_that_blocks_holds_up_no_other_before_beside_or_after_it() -> None:
    free, begun = threading.Event(), threading.Event()

    def respond(number: int) -> int:
        if number == 1:
            begun.set()
            assert free.wait(60)
        return number

    async def call() -> None:
        function = UserFunction(respond)
        calls = [asyncio.ensure_future(function(number)) for number in range(4)]
        while not begun.is_set():
            await asyncio.sleep(0.001)
        late = asyncio.ensure_future(function(4))
        assert [await calls[number] for number in (0, 2, 3)] == [0, 2, 3]
        assert [await late, await function(5)] == [4, 5]
        assert not calls[1].done()
        free.set()
        assert await calls[1] == 1

    try:
        asyncio.run(asyncio.wait_for(call(), 30))
    finally:
        free.set()


def test_calls_of_a_function_that_takes_long_do_not_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = threading.Barrier(4)

    async def call() -> None:
        function = UserFunction(meeting.wait)
        assert set(await asyncio.gather(*(function(60) for _ in range(4)))) == set(range(4))
        monkeypatch.setattr(threads, "_QUICK_SECONDS", 3600.0)  # they are not given up any more
        assert set(await asyncio.gather(*(function(60) for _ in range(4)))) == set(range(4))

    asyncio.run(asyncio.wait_for(call(), 30))


def test_a_function_is_called_in_batches_again_once_it_is_quick() -> None:
    free, begun = threading.Event(), threading.Event()
    seen: list[threading.Thread] = []

    def respond(*, is_slow: bool) -> threading.Thread:
        if is_slow:
            begun.set()
            assert free.wait(60)
        return threading.current_thread()

    async def call() -> None:
        function = UserFunction(respond)
        slow = asyncio.ensure_future(function(is_slow=True))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        await function(is_slow=False)
        # The function is known to be slow after the first, and to be quick once one has returned in time.
        while len(set(seen)) != 1:
            seen[:] = await asyncio.gather(*(function(is_slow=False) for _ in range(8)))
        free.set()
        assert await slow not in seen

    try:
        asyncio.run(asyncio.wait_for(call(), 30))
    finally:
        free.set()


def test_a_call_whose_caller_has_left_is_not_made() -> None:
    free, begun = threading.Event(), threading.Event()
    made: list[int] = []

    def respond(number: int) -> None:
        made.append(number)
        begun.set()
        assert free.wait(60)

    async def call() -> None:
        function = UserFunction(respond)
        calls = [asyncio.ensure_future(function(number)) for number in range(3)]
        while not begun.is_set():
            await asyncio.sleep(0)
        calls[1].cancel()
        await asyncio.sleep(0)
        free.set()
        assert await asyncio.gather(*calls, return_exceptions=True) == [None, ANY, None]
        assert made == [0, 2]

    asyncio.run(asyncio.wait_for(call(), 30))


async def where() -> tuple[threading.Thread, asyncio.AbstractEventLoop]:
    return threading.current_thread(), asyncio.get_running_loop()


def test_coroutines_share_an_event_loop_of_their_own() -> None:
    function = UserFunction(where)

    async def call() -> None:
        first, second = await function(), await function()
        assert first == second
        assert first[1] is not asyncio.get_running_loop()
        assert first[0].daemon

    asyncio.run(call())


def test_a_coroutine_that_blocks_holds_up_neither_its_caller_nor_the_next_call() -> None:
    free, begun = threading.Event(), threading.Event()

    async def block_once() -> str:
        if not begun.is_set():
            begun.set()
            free.wait(60)
        return "after"

    async def call() -> None:
        function = UserFunction(block_once)
        task = asyncio.ensure_future(function())
        while not begun.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await function() == "after"

    try:
        asyncio.run(asyncio.wait_for(call(), 30))
    finally:
        free.set()


def test_a_coroutine_that_is_cancelled_notices_it_and_keeps_its_loop() -> None:
    begun, left = threading.Event(), threading.Event()

    async def hang(is_first: bool) -> asyncio.AbstractEventLoop:
        begun.set()
        try:
            await asyncio.sleep(3600 if is_first else 0)
        except asyncio.CancelledError:
            left.set()
            raise
        return asyncio.get_running_loop()

    async def call() -> None:
        function = UserFunction(hang)
        loop = await function(False)
        begun.clear()
        task = asyncio.ensure_future(function(True))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(left.wait, 20)
        assert await function(False) is loop

    asyncio.run(call())


def test_a_coroutine_that_wants_to_end_the_process_ends_its_call() -> None:
    async def leave(code: int) -> None:
        sys.exit(code)

    async def call() -> None:
        function = UserFunction(leave)
        for code in (3, 4):
            with pytest.raises(RuntimeError, match=f"SystemExit: {code}"):
                await asyncio.wait_for(function(code), 20)

    asyncio.run(call())
