"""Calls functions of users, which may block or want to end the process, from an event loop."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import functools
import inspect
import queue
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

_PULSE_SECONDS = 1.0
"""For an event loop to answer after a call was cancelled; one that does not is blocked. A busy machine takes long."""

_QUICK_SECONDS = 0.02
"""A plain function that returns sooner is quick: to hand each of its calls to a thread takes as long as the calls."""

_MAX_IDLE = 64
"""Threads that wait for the next call."""


class UserFunction:
    """A function of the user's, plain or ``async``, that may hang or block without holding up anything else.

    A plain function is called in a thread of its own; calls that come together share one for as long as the function is
    quick. Coroutines share an event loop in a thread of its own, so that clients that belong to a loop can be used
    again. If one of them blocks that loop, it is left to itself with the loop as soon as its call is cancelled, and the
    next call gets another.

    Args:
        function: What is called.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._batches: _Batches | None = None
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
            return await self._batches_of_loop().call(functools.partial(self._function, *args, **kwargs))
        loop = await self._running_loop()
        future = asyncio.run_coroutine_threadsafe(_contained(self._function(*args, **kwargs)), loop)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:  # it has been cancelled in its loop, too
            pulse = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop)
            self._pulse = pulse, time.monotonic() + _PULSE_SECONDS
            raise

    def _batches_of_loop(self) -> _Batches:
        loop = asyncio.get_running_loop()
        if self._batches is None or self._batches.loop is not loop:
            self._batches = _Batches(loop)
        return self._batches

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
    batch = _Batch(asyncio.get_running_loop())
    future = batch.add(functools.partial(function, *args, **kwargs))
    batch.start(batch.settle)
    return await future


class _Batch:
    """Calls that one thread makes, one after the other.

    Args:
        loop: In which the calls' futures are settled.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Both change atomically: the thread takes calls and notes what they came to, while the loop looks.
        self.waiting: collections.deque[_Call] = collections.deque()
        self._ended: collections.deque[tuple[_Call, Any, BaseException | None]] = collections.deque()

    def add(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Add a call; return the future of what it returns."""
        call = _Call(function, self._loop.create_future())
        self.waiting.append(call)
        return call.future

    def start(self, when_ended: Callable[[], None]) -> None:
        """Make the calls in a thread; ``when_ended`` is then called in the event loop."""
        _THREADS.run(functools.partial(self._make, when_ended))

    def settle(self) -> None:
        """Settle the futures of calls that have ended; in the event loop."""
        while self._ended:
            call, value, error = self._ended.popleft()
            if call.future.done():  # cancelled
                continue
            if error is None:
                call.future.set_result(value)
            elif isinstance(error, Exception) and not isinstance(error, StopIteration):
                call.future.set_exception(error)
            else:
                call.future.set_exception(RuntimeError(f"{type(error).__name__}: {error}"))

    def _make(self, when_ended: Callable[[], None]) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._ended.append(self.waiting.popleft().made())
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(when_ended)


@dataclass(frozen=True, slots=True)
class _Call:
    function: Callable[[], Any]
    future: asyncio.Future[Any]

    def made(self) -> tuple[_Call, Any, BaseException | None]:
        """Make the call, unless its caller has left; return what it came to."""
        try:
            return self, None if self.future.done() else self.function(), None
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            return self, None, error


class _Batches:
    """Calls a plain function: in batches while it is quick, else each call in a thread of its own.

    Args:
        loop: The event loop of its callers, to which all of this belongs.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._is_quick = True
        self._next = _Batch(loop)
        self._is_running = False

    async def call(self, function: Callable[[], Any]) -> Any:
        """Call it; see ``call_in_thread``."""
        if not self._is_quick:
            began = time.monotonic()
            try:
                return await call_in_thread(function)
            finally:
                self._is_quick = time.monotonic() - began < _QUICK_SECONDS
        future = self._next.add(function)
        if not self._is_running:
            self._is_running = True
            # After the other callers that run in this moment, whose calls it takes along.
            self.loop.call_soon(self._start)
        return await future

    def _start(self) -> None:
        batch, self._next = self._next, _Batch(self.loop)
        relief = self.loop.call_later(_QUICK_SECONDS, self._relieve, batch)
        batch.start(functools.partial(self._finish, batch, relief))

    def _finish(self, batch: _Batch, relief: asyncio.TimerHandle) -> None:
        relief.cancel()
        batch.settle()
        self._is_running = bool(self._next.waiting)
        if self._is_running:
            self._start()

    def _relieve(self, batch: _Batch) -> None:
        """Leave a call that takes long alone with its thread: those that wait for it get threads of their own."""
        self._is_quick = self._is_running = False
        batch.settle()
        late, self._next = self._next, _Batch(self.loop)
        for waiting in (batch.waiting, late.waiting):
            with contextlib.suppress(IndexError):
                while True:
                    alone = _Batch(self.loop)
                    alone.waiting.append(waiting.popleft())
                    alone.start(alone.settle)


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
