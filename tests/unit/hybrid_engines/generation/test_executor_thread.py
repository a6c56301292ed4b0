"""The thread of an engine loses nothing that it was handed, however it ends."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rlinf.errors import EngineError
from rlinf.hybrid_engines.generation.executor_thread import ExecutorThread


class Busy:
    """A thread in the middle of a function, which goes on when it is told to.

    Attributes:
        ended: What had run when the thread ended, and with which error.
    """

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.ended: list[tuple[list[str], BaseException | None]] = []
        self.thread = ExecutorThread("test", work=lambda: False, ended=lambda e: self.ended.append(([*self.ran], e)))
        self.thread.start()
        self._begun, self._go_on = threading.Event(), threading.Event()

    def begin(self, error: Exception | None = None) -> None:
        """Return once the function is in progress; it raises ``error`` at its end."""

        def work() -> None:
            self._begun.set()
            self._go_on.wait()
            if error is not None:
                raise error

        self.thread.post(work)
        self._begun.wait()

    def close(self) -> None:
        """Close the thread while the function is in progress."""
        closer = threading.Thread(target=self.thread.close)
        closer.start()
        while not self.thread._closing:
            threading.Event().wait(0.001)
        self._go_on.set()
        closer.join()

    def fail(self) -> None:
        """Let the function end, and wait for the thread."""
        self._go_on.set()
        self.thread._thread.join()


def test_what_was_posted_before_the_end_has_run_by_then() -> None:
    busy = Busy()
    busy.begin()
    for name in "ab":
        busy.thread.post(lambda name=name: busy.ran.append(name))  # type: ignore[misc]
    busy.close()
    assert busy.ended == [(["a", "b"], None)]
    with pytest.raises(EngineError, match="The test engine is closed"):
        busy.thread.post(lambda: None)


def test_what_fails_at_the_end_takes_nothing_along() -> None:
    busy = Busy()
    busy.begin()
    busy.thread.post(lambda: 1 / 0)
    busy.thread.post(lambda: busy.ran.append("after"))
    busy.close()
    assert busy.ended == [(["after"], None)]


def test_after_a_failure_too() -> None:
    busy, broke = Busy(), ValueError("broke")
    busy.begin(broke)
    busy.thread.post(lambda: busy.ran.append("posted"))
    busy.fail()
    assert busy.ended == [(["posted"], broke)]


def test_calls_that_wait_at_the_end_raise() -> None:
    async def run() -> None:
        busy = Busy()
        busy.begin()
        call = asyncio.ensure_future(busy.thread.call(lambda: busy.ran.append("called")))
        await asyncio.sleep(0)
        await asyncio.to_thread(busy.close)
        with pytest.raises(EngineError, match="closed"):
            await call
        assert busy.ended == [([], None)]

    asyncio.run(run())
