"""Daemon threads for continuations: as many as wait at once, so that none holds up another."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

# A thread without work ends after this time.
_IDLE_SECONDS = 10.0


class _Helpers:
    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        # Threads without a task, less tasks that no thread has taken yet.
        self._num_free = 0
        self._lock = threading.Lock()

    def submit(self, task: Callable[[], None]) -> None:
        with self._lock:
            starts = self._num_free <= 0
            if not starts:
                self._num_free -= 1
        self._tasks.put(task)
        if starts:
            threading.Thread(target=self._run, name="rlinf-then", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                task = self._tasks.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._num_free > 0:  # else a task for this thread is on its way
                        self._num_free -= 1
                        return
                continue
            task()
            del task  # what it holds is not this thread's to keep
            with self._lock:
                self._num_free += 1


_helpers = _Helpers()


def run_on_helper(task: Callable[[], None]) -> None:
    """Call ``task``, which must not raise, on a thread of its own for that time; no reason for a process to stay."""
    _helpers.submit(task)
