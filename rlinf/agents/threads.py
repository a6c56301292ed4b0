"""Calls blocking functions of users from an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any


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

    threading.Thread(target=call, daemon=True, name="agent-call").start()
    return await future
