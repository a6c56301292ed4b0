"""The executor thread of an engine, and the futures by which coroutines get its results."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

from rlinf.errors import EngineError, RLinfError

T = TypeVar("T")


class ThreadFuture(Generic[T]):
    """A future that a coroutine awaits and another thread resolves; created on the event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[T] = self._loop.create_future()

    def __await__(self) -> Generator[Any, None, T]:
        return self._future.__await__()

    def resolve(self, value: T) -> None:
        """Set the value, from any thread; no effect once the future is done or cancelled."""
        self._settle(lambda: self._future.set_result(value))

    def reject(self, error: BaseException) -> None:
        """Set the error that the awaiting coroutine raises, from any thread."""
        self._settle(lambda: self._future.set_exception(error))

    def _settle(self, settle: Callable[[], None]) -> None:
        def unless_done() -> None:
            if not self._future.done():
                settle()

        try:
            self._loop.call_soon_threadsafe(unless_done)
        except RuntimeError:
            # The loop is closed.
            return


class ExecutorThread:
    """Runs submitted functions in order, and ``work`` in between.

    An ``RLinfError`` is raised in the caller. Any other error ends the thread and fails this and all later calls.

    Args:
        name: Of the thread, and of the engine in messages.
        work: Called whenever no function is pending; returns whether there is more to do. If not, the thread sleeps
            until a function is submitted.
        ended: Called once, last of all, with the error that ended the thread or None.
    """

    def __init__(self, name: str, *, work: Callable[[], bool], ended: Callable[[BaseException | None], None]) -> None:
        self._name = name
        self._work = work
        self._ended_callback = ended
        self._commands: deque[tuple[Callable[[], Any], ThreadFuture[Any] | None]] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._ended = False
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def call(self, function: Callable[[], T]) -> T:
        """Run a function on the thread and return what it returns.

        Args:
            function: Runs before any further work.

        Raises:
            EngineError: The thread has ended.
        """
        reply: ThreadFuture[T] = ThreadFuture()
        self.post(function, reply)
        return await reply

    def post(self, function: Callable[[], T], reply: ThreadFuture[T] | None = None) -> None:
        """Run a function on the thread, without waiting for it.

        Args:
            function: Runs before any further work.
            reply: Gets its value or error.

        Raises:
            EngineError: The thread has ended.
        """
        with self._changed:
            if self._ended:
                raise self.error()
            self._commands.append((function, reply))
            self._changed.notify()

    def close(self) -> None:
        """End the thread after the work it is doing, and wait for that."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def error(self) -> EngineError:
        """Return the error to raise now that the thread has ended; its cause is what ended it."""
        if self.failure is None:
            return EngineError(f"The {self._name} engine is closed.")
        error = EngineError(f"The {self._name} engine has failed: {type(self.failure).__name__}: {self.failure}")
        error.__cause__ = self.failure
        return error

    def _run(self) -> None:
        try:
            busy = False
            while self._serve(wait=not busy):
                busy = self._work()
        except BaseException as error:  # noqa: BLE001 - the boundary: every waiting and later call raises it
            self.failure = error
        with self._changed:
            self._ended = True
            commands, self._commands = list(self._commands), deque()
        for function, reply in commands:
            if reply is not None:
                reply.reject(self.error())
                continue
            # What it hands over, such as a request, must not be lost: ``ended`` sees to it as to everything before.
            with contextlib.suppress(Exception):
                function()
        self._ended_callback(self.failure)

    def _serve(self, *, wait: bool) -> bool:
        """Run the pending functions; return False once the thread should end."""
        with self._changed:
            while wait and not self._commands and not self._closing:
                self._changed.wait()
        while self._commands and not self._closing:
            self._run_command(*self._commands.popleft())
        return not self._closing

    def _run_command(self, function: Callable[[], Any], reply: ThreadFuture[Any] | None) -> None:
        try:
            value = function()
        except RLinfError as error:
            if reply is None:
                raise
            reply.reject(error)
        except BaseException as error:
            self.failure = error
            if reply is not None:
                reply.reject(self.error())
            raise
        else:
            if reply is not None:
                reply.resolve(value)
