"""Calls functions of users, which may block or want to end the process, from an event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import queue
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

_PULSE_SECONDS = 1.0
"""For an event loop to answer after a call was cancelled; one that does not is blocked. A busy machine takes long."""

_MAX_IDLE = 64
"""Threads that wait for the next call."""


class UserFunction:
    """A function of the user's, plain or ``async``, that may hang or block without holding up anything else.

    A plain function is called in a thread of its own. Coroutines share an event loop in a thread of its own, so that
    clients that belong to a loop can be used again. If one of them blocks that loop, it is left to itself with the loop
    as soon as its call is cancelled, and the next call gets another.

    Args:
        function: What is called.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._loop: asyncio.AbstractEventLoop | None = None
        # Of a loop in which a call was cancelled, and until when it may take.
        self._pulse: tuple[concurrent.futures.Future[None], float] | None = None

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it.

        Raises:
            RuntimeError: The function wanted to end the process (``SystemExit``); its other exceptions are raised as
                they are.
        """
        if not inspect.iscoroutinefunction(self._function):
            return await call_in_thread(self._function, *args, **kwargs)
        loop = await self._running_loop()
        future = asyncio.run_coroutine_threadsafe(_contained(self._function(*args, **kwargs)), loop)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:  # it has been cancelled in its loop, too
            pulse = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop)
            self._pulse = pulse, time.monotonic() + _PULSE_SECONDS
            raise

    async def _running_loop(self) -> asyncio.AbstractEventLoop:
        pulse = self._pulse
        if pulse is not None:
            answer, deadline = pulse
            left = max(deadline - time.monotonic(), 0.0)
            done, _ = await asyncio.wait({asyncio.wrap_future(answer)}, timeout=left)
            # A later call may have looked first.
            if self._pulse is pulse:
                self._pulse = None
                self._loop = self._loop if done else None
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, daemon=True, name="agent-loop").start()
        return self._loop


async def _contained(called: Awaitable[Any]) -> Any:
    """Await a coroutine; what would end its event loop is an exception like others."""
    try:
        return await called
    except (SystemExit, KeyboardInterrupt) as error:
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


async def call_in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function in a thread of its own, so that one that hangs takes no thread from others.

    When this is cancelled the thread is left to itself, as nothing can end it.

    Raises:
        RuntimeError: The function wanted to end the process (``SystemExit``); its other exceptions are raised as they
            are.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def finish(value: Any, error: BaseException | None) -> None:
        if future.done():  # cancelled
            return
        if error is None:
            future.set_result(value)
        elif isinstance(error, Exception) and not isinstance(error, StopIteration):
            future.set_exception(error)
        else:
            future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))

    def call() -> None:
        value, error = None, None
        try:
            value = function(*args, **kwargs)
        except BaseException as raised:  # noqa: BLE001 - raised again by the caller
            error = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish, value, error)

    _THREADS.run(call)
    return await future


class _Threads:
    """Threads that are used again: to start one, its caller waits until it runs, which takes long next to busy ones."""

    def __init__(self) -> None:
        # Of threads that have nothing to do, the last one that ended first; lists change atomically.
        self._idle: list[queue.SimpleQueue[Callable[[], None]]] = []

    def run(self, call: Callable[[], None]) -> None:
        """Call a function that raises nothing, at once: in a thread that has nothing to do, or in a new one."""
        try:
            self._idle.pop().put(call)
        except IndexError:
            threading.Thread(target=self._work, args=(call,), daemon=True, name="agent-call").start()

    def _work(self, call: Callable[[], None]) -> None:
        calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        while True:
            call()
            if len(self._idle) >= _MAX_IDLE:
                return
            self._idle.append(calls)
            call = calls.get()


_THREADS = _Threads()
