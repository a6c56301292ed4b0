"""Blocking functions called from an event loop."""

from __future__ import annotations

import asyncio
import sys
import threading

import pytest

from rlinf.agents.threads import call_in_thread


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
