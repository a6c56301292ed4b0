"""Functions of users, called from an event loop: they may block, hang, raise and want to end the process."""

from __future__ import annotations

import asyncio
import sys
import threading

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
